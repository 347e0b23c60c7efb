"""``sublayer evaluate``: how well a model predicts a text."""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sublayer.commands.base import JsonOption, emit, say, table
from sublayer.config.layers import read_run_recipe
from sublayer.errors import CheckpointError, ConfigError, DataError

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.data.split import Split
    from sublayer.evaluate.likelihood import Likelihood
    from sublayer.model.transformer import Transformer

EXAMPLE = "sublayer evaluate runs/gpt --split test --stride 64"

_PLAIN_LINE_S = 10.0
_CPU_BATCH_TOKENS = 4096
_GPU_BATCH_TOKENS = 32768
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
    device: Annotated[
        str | None, typer.Option("--device", help="cpu, cuda, cuda:1 ... Default: the GPU where there is one.")
    ] = None,
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
    recipe = _recipe(run)
    context = _longest(model) if recipe is None else recipe.data.context
    stride = max(1, context // 2) if stride is None else stride
    check_stride(stride, context)
    if path is None and corpus is None:
        text = _own_split(run, recipe, model, split or "valid")
    else:
        text = _other_text(run, model, path, corpus, split or "valid")
    respects = recipe is not None and recipe.data.boundaries == "respect"
    likelihood = _score(model, text, context=context, stride=stride, batch=batch, respects=respects)
    source = {"split": None if path else text.name, "sources": list(text.sources), "sha256": text.store.sha256}
    where = {"context": context, "stride": stride, "is_lossless": text.store.is_lossless, "run": str(run)}
    emit({**_figures(likelihood), **source, **where}, as_json, _render)


def _score(
    model: "Transformer", text: "Split", *, context: int, stride: int, batch: int | None, respects: bool
) -> "Likelihood":
    from sublayer.evaluate.likelihood import score

    is_cpu = model.embedding.weight.device.type == "cpu"
    batch_tokens = _CPU_BATCH_TOKENS if is_cpu else _GPU_BATCH_TOKENS
    return score(
        model,
        text,
        context=context,
        stride=stride,
        batch_sequences=batch or max(1, batch_tokens // context),
        respect_boundaries=respects,
        progress=_Progress(),
    )


def _figures(likelihood: "Likelihood") -> dict[str, Any]:
    return {name: getattr(likelihood, name) for name in (*_RATIOS, *_COUNTS)}


def _recipe(run: Path) -> "Recipe | None":
    from sublayer.load import find_recipe

    path = find_recipe(run)
    return None if path is None else read_run_recipe(path)


def _longest(model: "Transformer") -> int:
    assert model.config.max_len is not None, "a saved config is resolved"
    return model.config.max_len


def _own_split(run: Path, recipe: "Recipe | None", model: "Transformer", name: str) -> "Split":
    from sublayer.data.prepare import prepare
    from sublayer.load import find_recipe

    path = find_recipe(run)
    if path is None or recipe is None:
        raise ConfigError(f"{run} does not belong to a run, so it has no split of its own: give --path or --corpus")
    data = prepare(recipe.data, tokenizer=model.tokenizer)
    split: Split = getattr(data, name)
    if _recorded_checksum(path.parent, name) not in (None, split.store.sha256):
        raise DataError(f"the text of {run} is no longer what it was trained with: restore it, or score it by --path")
    return split


def _recorded_checksum(run: Path, name: str) -> str | None:
    try:
        record = json.loads((run / "record.json").read_text(encoding="utf-8"))
        return str(record["data"]["checksums"][name])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{run / 'record.json'} is damaged: score the model by --path or --corpus") from None


def _other_text(
    run: Path, model: "Transformer", path: str | None, corpus: str | None, name: Literal["valid", "test"]
) -> "Split":
    from sublayer.data.prepare import prepare_text

    if model.tokenizer is None:
        raise CheckpointError(f"{run} has no tokenizer.json, without which text cannot be turned into its tokens")
    return prepare_text(model.tokenizer, path=path, corpus=corpus, split=name)


class _Progress:
    """Tokens scored so far: one line that is renewed on a terminal, else a line every ten seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._on_terminal = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        text = f"scored {done:,} of {total:,} tokens ({done / total:.0%})"
        if self._on_terminal:
            print(f"\r{text}", end="\n" if done == total else "", file=sys.stderr, flush=True)
        elif time.monotonic() - self._last > _PLAIN_LINE_S:
            self._last = time.monotonic()
            say(text)


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
