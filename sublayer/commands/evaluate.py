"""``sublayer evaluate``: how well a model predicts a text, and an encoder judges pairs of texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sublayer.commands.base import DeviceOption, JsonOption, emit, table
from sublayer.commands.beam import (
    AverageOption,
    BeamOption,
    MoreOption,
    PenaltyOption,
    RuleOption,
    ShareOption,
    beam_settings,
)
from sublayer.commands.evaluate_encoder import DEFAULT_PAIRS, Amount, evaluate_encoder, render_encoder
from sublayer.commands.evaluate_translation import evaluate_translator, render_translator
from sublayer.commands.reading import (
    TokenProgress,
    batch_sequences,
    context_of,
    other_text,
    own_split,
    recipe_of,
)
from sublayer.config.data import INTRINSIC, DataConfig, DocumentRule, SentenceRule
from sublayer.errors import ConfigError

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
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
    corpus: Annotated[
        str | None,
        typer.Option(
            "--corpus", help="Score a split of a named corpus instead; albert-intrinsic: the passages of --path."
        ),
    ] = None,
    documents: Annotated[
        DocumentRule | None,
        typer.Option("--documents", help="What a document of --path is, as data.documents says."),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            "--stride",
            help="Tokens between windows: 1 scores each token with the full context, more costs less. "
            "Default: half the context.",
        ),
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option("--pairs", min=1, help="Pairs of texts that an encoder judges, at least. Default: 2000."),
    ] = None,
    beam: BeamOption = None,
    rule: RuleOption = None,
    penalty: PenaltyOption = None,
    share: ShareOption = None,
    more: MoreOption = None,
    average: AverageOption = None,
    compounds: Annotated[
        bool,
        typer.Option(
            "--compounds",
            help="Also score a translator's words after every hyphen within a word was made one of its own (WMT14): "
            "higher than BLEU otherwise is.",
        ),
    ] = False,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Windows computed at a time; it changes speed and memory only.")
    ] = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score a decoder on every token of a text but the first, once: what it costs per token, byte, character and word.

    An encoder predicts hidden tokens, and judges whether texts belong together: next sentence (nsp) and sentence order
    (sop), whichever it was trained on. A translator translates, and is scored against the text's own translations. The
    arithmetic is that of the saved weights, float32, whatever the precision of training was.
    """
    from sublayer.load import check_device, load
    from sublayer.model.encoder import Encoder
    from sublayer.model.encoder_decoder import EncoderDecoder
    from sublayer.train.machine import choose_device

    asked = _Text(run, split, path, corpus, documents)
    asked.check()
    model = load(run, device=choose_device(None) if device is None else check_device(device), average=average)
    recipe = recipe_of(run)
    if isinstance(model, EncoderDecoder):
        if (path, corpus, documents, stride, pairs) != (None,) * 5:
            raise ConfigError("a translator is scored on a split of its own text: leave out all but --split")
        settings = beam_settings(beam, rule, penalty, share, more)
        scores = evaluate_translator(run, model, recipe, split or "valid", settings, batch or 32, compounds=compounds)
        emit(scores, as_json, render_translator)
        return
    if (beam, rule, penalty, share, more, compounds) != (None, None, None, None, None, False):
        raise ConfigError("--beam and its companions are of translators: leave them out")
    if isinstance(model, Encoder):
        if stride is not None:
            raise ConfigError("--stride is of decoders, which read a text in windows: leave it out for an encoder")
        text = asked.read(model, recipe, _sentences(recipe, corpus))
        scores = evaluate_encoder(run, model, recipe, text, Amount(pairs or DEFAULT_PAIRS, batch))
        emit({**scores, **_source(text, path)}, as_json, render_encoder)
        return
    if pairs is not None:
        raise ConfigError("--pairs is of encoders, which judge pairs of texts: leave it out for a decoder")
    emit(_evaluate_decoder(model, recipe, asked, stride, batch), as_json, _render)


def _sentences(recipe: "Recipe | None", corpus: str | None) -> SentenceRule:
    # As in training; but passages are prose, whose lines are no sentences.
    if recipe is None or (corpus == INTRINSIC and recipe.data.sentences == "lines"):
        return "prose"
    return recipe.data.sentences


@dataclass(frozen=True)
class _Text:
    """Which text is scored: a split of the run's own, all of another, or a split of a corpus."""

    run: Path
    split: Literal["valid", "test"] | None
    path: str | None
    corpus: str | None
    documents: DocumentRule | None

    def check(self) -> None:
        """Raise ConfigError for options that contradict each other."""
        if self.path is not None and (self.corpus not in (None, INTRINSIC) or self.split is not None):
            raise ConfigError(f"--path scores all of a text: leave out {'--split' if self.split else '--corpus'}")
        if self.documents is not None and (self.path is None or self.corpus is not None):
            raise ConfigError("--documents says how the text of --path is read: give a --path alone, or leave it out")

    def read(self, model: "Transformer", recipe: "Recipe | None", sentences: SentenceRule) -> "Split":
        """Read the text, cut into sentences by a rule unless it is the run's own."""
        name = self.split or "valid"
        if self.path is None and self.corpus is None:
            return own_split(self.run, recipe, model, name)
        data = DataConfig() if recipe is None else recipe.data
        return other_text(
            self.run,
            model,
            self.path,
            self.corpus,
            name,
            sentences=sentences,
            documents=self.documents or data.documents,
            text_field=data.text_field,
            shares=data.split,
        )


def _evaluate_decoder(
    model: "Transformer", recipe: "Recipe | None", asked: _Text, stride: int | None, batch: int | None
) -> dict[str, Any]:
    from sublayer.evaluate.likelihood import check_stride

    context = context_of(model, recipe)
    stride = max(1, context // 2) if stride is None else stride
    check_stride(stride, context)
    text = asked.read(model, recipe, "none")
    respects = recipe is not None and recipe.data.boundaries == "respect"
    likelihood = _score(model, text, context=context, stride=stride, batch=batch, respects=respects)
    where = {"context": context, "stride": stride, "is_lossless": text.store.is_lossless, "run": str(asked.run)}
    return {**_figures(likelihood), **_source(text, asked.path), **where}


def _source(text: "Split", path: str | None) -> dict[str, Any]:
    return {"split": None if path else text.name, "sources": list(text.sources), "sha256": text.store.sha256}


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
