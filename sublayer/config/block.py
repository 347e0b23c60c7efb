"""The notation of a block: a list of residual sub-layers, each ``name[:variant][*step]``."""

from dataclasses import dataclass

from sublayer.config.limits import LARGEST_FACTOR, MOST_ENTRIES
from sublayer.errors import ConfigError

FFN_VARIANTS = ("relu", "gelu", "swish", "glu", "bilinear", "reglu", "geglu", "swiglu")
SUBLAYERS = ("attention", "cross", "ffn")
BLOCKS: dict[str, tuple[str, ...]] = {
    "transformer": ("attention", "ffn"),
    "macaron": ("ffn*0.5", "attention", "ffn*0.5"),
}


@dataclass(frozen=True)
class Entry:
    """One residual sub-layer of a block: ``x = x + step * f(x)``."""

    name: str
    variant: str | None
    step: float

    def __str__(self) -> str:
        variant = "" if self.variant is None else f":{self.variant}"
        return f"{self.name}{variant}" + ("" if self.step == 1.0 else f"*{self.step!r}")


def parse_block(block: str | tuple[str, ...], *, default_ffn: str, field: str = "model.block") -> tuple[Entry, ...]:
    """Read a block's name or its list of entries; ``ffn`` entries without a variant get ``default_ffn``.

    Raises ConfigError, naming ``field``, for an unknown name, variant or step, and for an empty list.
    """
    if isinstance(block, str):
        if block not in BLOCKS:
            raise ConfigError(
                f"{field} = {block[:80]!r} is not one of {', '.join(BLOCKS)}, nor a list such as "
                "['ffn*0.5', 'attention', 'ffn*0.5']"
            )
        block = BLOCKS[block]
    if not block:
        raise ConfigError(f"{field} is an empty list; give at least one of attention, ffn")
    if len(block) > MOST_ENTRIES:
        raise ConfigError(f"{field} has {len(block):,} entries: give at most {MOST_ENTRIES}")
    return tuple(_parse_entry(text, default_ffn, field) for text in block)


def with_cross(block: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Put a ``cross`` of the same step after each ``attention``: the decoder's block of an encoder-decoder."""
    found: list[Entry] = []
    for entry in block:
        found.append(entry)
        if entry.name == "attention":
            found.append(Entry("cross", None, entry.step))
    return tuple(found)


def _parse_entry(text: str, default_ffn: str, field: str) -> Entry:
    head, star, step_text = text.partition("*")
    name, colon, variant = head.partition(":")
    if name not in SUBLAYERS:
        raise ConfigError(f"{field} entry {text[:80]!r}: {name[:80]!r} is not one of {', '.join(SUBLAYERS)}")
    if colon and (name != "ffn" or variant not in FFN_VARIANTS):
        raise ConfigError(f"{field} entry {text[:80]!r}: only ffn takes a variant, one of {', '.join(FFN_VARIANTS)}")
    try:
        step = float(step_text) if star else 1.0
    except ValueError:
        raise ConfigError(f"{field} entry {text[:80]!r}: the step {step_text[:80]!r} is not a number") from None
    if step == 0.0 or step != step or step in (float("inf"), float("-inf")):
        raise ConfigError(f"{field} entry {text[:80]!r}: the step must be finite and not 0")
    if abs(step) > LARGEST_FACTOR:
        raise ConfigError(f"{field} entry {text[:80]!r}: the step must be at most {LARGEST_FACTOR:,.0f}")
    if name == "ffn":
        return Entry(name, variant or default_ffn, step)
    return Entry(name, None, step)
