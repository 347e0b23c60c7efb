"""``sublayer evaluate``: how well a model predicts a text."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sublayer.commands.base import DeviceOption, JsonOption, emit, table
from sublayer.commands.reading import TokenProgress, batch_sequences, context_of, other_text, own_split, recipe_of
from sublayer.errors import ConfigError

if TYPE_CHECKING:
    from sublayer.data.split import Split
    from sublayer.evaluate.likelihood import Likelihood
    from sublayer.model.transformer import Transformer

EXAMPLE = "sublayer evaluate runs/gpt --split test --stride 64"

_RATIOS = ("loss", "bits_per_byte", "bits_per_character", "perplexity", "word_perplexity")
_COUNTS = ("tokens", "bytes", "characters", "words")


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, a checkpoint, or an imported folder.")],
    split: Annotated[
        Literal["valid", "test"] | None,
        typer.Option("--split", help="Split of the run's own text, or of --corpus. Default: valid."),
    ] = None,
    path: Annotated[
        str | None, typer.Option("--path", help="Score another text, all of it: a file, a folder or a glob.")
    ] = None,
    corpus: Annotated[str | None, typer.Option("--corpus", help="Score a split of a named corpus instead.")] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            "--stride",
            help="Tokens between windows: 1 scores each token with the full context, more costs less. "
            "Default: half the context.",
        ),
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Windows computed at a time; it changes speed and memory only.")
    ] = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score every token of a text but the first, once, and say what it costs per token, byte, character and word.

    The arithmetic is that of the saved weights, float32, whatever the precision of training was.
    """
    if path is not None and (corpus is not None or split is not None):
        raise ConfigError(f"--path scores all of a text: leave out {'--split' if split else '--corpus'}")

    from sublayer.evaluate.likelihood import check_stride
    from sublayer.load import check_device, load
    from sublayer.train.machine import choose_device

    model = load(run, device=choose_device(None) if device is None else check_device(device))
    recipe = recipe_of(run)
    context = context_of(model, recipe)
    stride = max(1, context // 2) if stride is None else stride
    check_stride(stride, context)
    if path is None and corpus is None:
        text = own_split(run, recipe, model, split or "valid")
    else:
        text = other_text(run, model, path, corpus, split or "valid")
    respects = recipe is not None and recipe.data.boundaries == "respect"
    likelihood = _score(model, text, context=context, stride=stride, batch=batch, respects=respects)
    source = {"split": None if path else text.name, "sources": list(text.sources), "sha256": text.store.sha256}
    where = {"context": context, "stride": stride, "is_lossless": text.store.is_lossless, "run": str(run)}
    emit({**_figures(likelihood), **source, **where}, as_json, _render)


def _score(
    model: "Transformer", text: "Split", *, context: int, stride: int, batch: int | None, respects: bool
) -> "Likelihood":
    from sublayer.evaluate.likelihood import score

    return score(
        model,
        text,
        context=context,
        stride=stride,
        batch_sequences=batch or batch_sequences(model, context),
        respect_boundaries=respects,
        progress=TokenProgress("scored"),
    )


def _figures(likelihood: "Likelihood") -> dict[str, Any]:
    return {name: getattr(likelihood, name) for name in (*_RATIOS, *_COUNTS)}


def _render(result: Mapping[str, Any]) -> str:
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
