"""The notation of a block: a list of residual sub-layers, each ``name[:variant][*step]``."""

from dataclasses import dataclass

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


def parse_block(block: str | tuple[str, ...], *, default_ffn: str) -> tuple[Entry, ...]:
    """Read a block's name or its list of entries; ``ffn`` entries without a variant get ``default_ffn``.

    Raises ConfigError for an unknown name, variant or step, and for an empty list.
    """
    if isinstance(block, str):
        if block not in BLOCKS:
            raise ConfigError(
                f"model.block = {block!r} is not one of {', '.join(BLOCKS)}, nor a list such as "
                "['ffn*0.5', 'attention', 'ffn*0.5']"
            )
        block = BLOCKS[block]
    if not block:
        raise ConfigError("model.block is an empty list; give at least one of attention, ffn")
    return tuple(_parse_entry(text, default_ffn) for text in block)


def _parse_entry(text: str, default_ffn: str) -> Entry:
    head, star, step_text = text.partition("*")
    name, colon, variant = head.partition(":")
    if name not in SUBLAYERS:
        raise ConfigError(f"model.block entry {text!r}: {name!r} is not one of {', '.join(SUBLAYERS)}")
    if colon and (name != "ffn" or variant not in FFN_VARIANTS):
        raise ConfigError(f"model.block entry {text!r}: only ffn takes a variant, one of {', '.join(FFN_VARIANTS)}")
    try:
        step = float(step_text) if star else 1.0
    except ValueError:
        raise ConfigError(f"model.block entry {text!r}: the step {step_text!r} is not a number") from None
    if step == 0.0 or step != step or step in (float("inf"), float("-inf")):
        raise ConfigError(f"model.block entry {text!r}: the step must be finite and not 0")
    if name == "ffn":
        return Entry(name, variant or default_ffn, step)
    return Entry(name, None, step)
