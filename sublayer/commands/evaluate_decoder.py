"""What ``sublayer evaluate`` does with a decoder: score every token of a text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sublayer.commands.base import table
from sublayer.commands.reading import TokenProgress, batch_sequences, context_of

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.data.split import Split
    from sublayer.evaluate.likelihood import Likelihood
    from sublayer.model.transformer import Transformer

_RATIOS = ("loss", "bits_per_byte", "bits_per_character", "perplexity", "word_perplexity")
_COUNTS = ("tokens", "bytes", "characters", "words")


@dataclass(frozen=True)
class Windows:
    """Tokens of a window and between windows, and how many windows are computed at a time, None: as many as suit."""

    context: int
    stride: int
    batch: int | None


def choose_windows(model: "Transformer", recipe: "Recipe | None", stride: int | None, batch: int | None) -> Windows:
    """Choose the windows of a text. Raises ConfigError for a stride that leaves tokens out."""
    from sublayer.evaluate.likelihood import check_stride

    context = context_of(model, recipe)
    stride = max(1, context // 2) if stride is None else stride
    check_stride(stride, context)
    return Windows(context, stride, batch)


def evaluate_decoder(model: "Transformer", recipe: "Recipe | None", text: "Split", windows: Windows) -> dict[str, Any]:
    """Score a text, and say in what windows."""
    respects = recipe is not None and recipe.data.boundaries == "respect"
    likelihood = _score(model, text, windows, respects=respects)
    figures = {name: getattr(likelihood, name) for name in (*_RATIOS, *_COUNTS)}
    return {
        **figures,
        "context": windows.context,
        "stride": windows.stride,
        "is_lossless": text.store.is_lossless,
    }


def _score(model: "Transformer", text: "Split", windows: Windows, *, respects: bool) -> "Likelihood":
    from sublayer.evaluate.likelihood import score

    return score(
        model,
        text,
        context=windows.context,
        stride=windows.stride,
        batch_sequences=windows.batch or batch_sequences(model, windows.context),
        respect_boundaries=respects,
        progress=TokenProgress("scored"),
    )


def render_decoder(result: Mapping[str, Any]) -> str:
    """Lay the scores out."""
    what = "" if result["split"] is None else f"the {result['split']} split of "
    rows = [
        ("loss", f"{result['loss']:.4f}", "nats per token"),
        ("bits per byte", f"{result['bits_per_byte']:.4f}", _counted(result["bytes"], "byte")),
        ("bits per character", f"{result['bits_per_character']:.4f}", _counted(result["characters"], "character")),
        ("perplexity", f"{result['perplexity']:.2f}", "per token"),
        ("word perplexity", f"{result['word_perplexity']:.4g}", _counted(result["words"], "word")),
    ]
    lines = [
        f"scored {result['tokens']:,} tokens of {what}{', '.join(result['sources'])}",
        f"in windows of {result['context']} tokens, stride {result['stride']}",
        table(["measure", "value", "of"], rows, right=[1]),
    ]
    if not result["is_lossless"]:
        lines.append("the tokenizer is lossy: unknown text was scored as unknown, so that these are not comparable")
    return "\n".join(lines)


def _counted(count: int, unit: str) -> str:
    return f"{count:,} {unit}" if count == 1 else f"{count:,} {unit}s"
