"""What ``sublayer evaluate`` does with a decoder: score every token of a text."""

from collections.abc import Mapping
from typing import Any

from sublayer.counts import count
from sublayer.evaluation.likelihood import check_stride, score
from sublayer.objective.evaluation import (
    Evaluation,
    batch_sequences,
    context_of,
    describe_sources,
)
from sublayer.tables import table

_RATIOS = ("loss", "bits_per_byte", "bits_per_character", "perplexity", "word_perplexity")
_COUNTS = ("tokens", "bytes", "characters", "words")


def evaluate_decoder(asked: Evaluation) -> dict[str, Any]:
    """Score every token of a text but the first, and say in what windows.

    The option ``stride`` is in tokens, by default half the context.

    Raises ConfigError for a stride below 1, or one that leaves tokens out: above the context.
    DataError where the text has fewer than two tokens.
    """
    model, recipe = asked.model, asked.recipe
    context = context_of(model, recipe)
    stride = asked.options.get("stride", max(1, context // 2))
    check_stride(stride, context)
    text = asked.read_text("none")
    respects = recipe is not None and recipe.data.boundaries == "respect"
    likelihood = score(
        model,
        text,
        context=context,
        stride=stride,
        batch_sequences=asked.batch or batch_sequences(model, context),
        respect_boundaries=respects,
        progress=asked.progress("scored", "tokens"),
    )
    measures = {name: getattr(likelihood, name) for name in (*_RATIOS, *_COUNTS)}
    return {
        **measures,
        "context": context,
        "stride": stride,
        "is_lossless": text.store.is_lossless,
        **asked.describe_text(text),
    }


def describe_decoder(scores: Mapping[str, Any]) -> str:
    """Format the scores of training as one line."""
    return f"loss {scores['loss']:.4f} nats per token, {scores['bits_per_byte']:.4f} bits per byte"


def render_decoder(result: Mapping[str, Any]) -> str:
    """Format the scores for the terminal."""
    n_bytes = count(result["bytes"], "byte")
    n_characters = count(result["characters"], "character")
    n_words = count(result["words"], "word")
    rows = [
        ("loss", f"{result['loss']:.4f}", "nats per token"),
        ("bits per byte", f"{result['bits_per_byte']:.4f}", n_bytes),
        ("bits per character", f"{result['bits_per_character']:.4f}", n_characters),
        ("perplexity", f"{result['perplexity']:.2f}", "per token"),
        ("word perplexity", f"{result['word_perplexity']:.4g}", n_words),
    ]
    lines = [
        f"scored {count(result['tokens'], 'token')} of {describe_sources(result)}",
        f"in windows of {result['context']} tokens, stride {result['stride']}",
        table(["measure", "value", "of"], rows, right=[1]),
    ]
    if not result["is_lossless"]:
        lines.append(
            "the tokenizer is lossy: unknown text was scored as unknown, "
            "so that these are not comparable"
        )
    return "\n".join(lines)
