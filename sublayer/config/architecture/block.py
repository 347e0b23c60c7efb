"""The notation of a block: a list of residual sub-layers, each ``name[:variant][*step]``."""

import math
from dataclasses import dataclass

from sublayer.config.architecture.feedforward import FFNS, Ffn
from sublayer.config.architecture.sublayers import SUBLAYERS, SublayerKind
from sublayer.config.limits import LARGEST_FACTOR, MOST_ENTRIES
from sublayer.errors import ConfigError

BLOCKS: dict[str, tuple[str, ...]] = {
    "transformer": ("attention", "ffn"),
    "macaron": ("ffn*0.5", "attention", "ffn*0.5"),
}


@dataclass(frozen=True)
class Entry:
    """One residual sub-layer of a block: ``x = x + step * f(x)``."""

    name: str
    variant: str | None
    """The name of its feed-forward network; None for attention."""
    step: float
    """Finite and not 0; below 0 it subtracts."""

    @property
    def kind(self) -> SublayerKind:
        """Return the kind of sub-layer that the name stands for."""
        return SUBLAYERS[self.name]

    @property
    def ffn(self) -> Ffn | None:
        """Return the feed-forward network; None for attention."""
        return None if self.variant is None else FFNS[self.variant]

    def __str__(self) -> str:
        variant = "" if self.variant is None else f":{self.variant}"
        step = "" if self.step == 1.0 else f"*{self.step!r}"
        return f"{self.name}{variant}{step}"


def parse_block(
    block: str | tuple[str, ...], *, default_ffn: str, field: str = "model.block"
) -> tuple[Entry, ...]:
    """Read a block's name or its list of entries.

    ``ffn`` entries without a variant get ``default_ffn``. Raises ConfigError, naming ``field``, for
    an unknown name, variant or step, for an empty list, and for one of too many entries.
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
    entries = []
    for text in block:
        named = f"{field} entry {text[:80]!r}"
        entries.append(_parse_entry(text, default_ffn, named))
    return tuple(entries)


def with_cross(block: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Build the block of an encoder-decoder's decoder: a ``cross`` after each ``attention``.

    It has the step of the entry that it follows.
    """
    entries: list[Entry] = []
    for entry in block:
        entries.append(entry)
        if entry.kind.attends_to == "itself":
            entries.append(Entry("cross", None, entry.step))
    return tuple(entries)


def _parse_entry(text: str, default_ffn: str, named: str) -> Entry:
    head, star, step_text = text.partition("*")
    name, colon, variant = head.partition(":")
    written = [each for each, row in SUBLAYERS.items() if not row.is_recurrent]
    if name not in written:
        raise ConfigError(f"{named}: {name[:80]!r} is not one of {', '.join(written)}")
    kind = SUBLAYERS[name]
    if colon and (not kind.has_variants or variant not in FFNS):
        able = [each for each, row in SUBLAYERS.items() if row.has_variants]
        raise ConfigError(
            f"{named}: only {' or '.join(able)} takes a variant, one of {', '.join(FFNS)}"
        )
    step = _parse_step(step_text, named) if star else 1.0
    if not kind.has_variants:
        return Entry(name, None, step)
    return Entry(name, variant or default_ffn, step)


def _parse_step(text: str, named: str) -> float:
    try:
        step = float(text)
    except ValueError:
        raise ConfigError(f"{named}: the step {text[:80]!r} is not a number") from None
    if step == 0.0 or not math.isfinite(step):
        raise ConfigError(f"{named}: the step must be finite and not 0")
    if abs(step) > LARGEST_FACTOR:
        raise ConfigError(f"{named}: the step must be at most {LARGEST_FACTOR:,.0f}")
    return step
