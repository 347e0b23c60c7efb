"""``sublayer evaluate``: how well a model predicts a text, and an encoder judges pairs of texts."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sublayer.commands.base import AverageOption, BatchOption, DeviceOption, JsonOption, emit
from sublayer.commands.beam import (
    BeamOption,
    MoreOption,
    PenaltyOption,
    RuleOption,
    ShareOption,
    beam_settings,
)
from sublayer.commands.evaluate_decoder import choose_windows, evaluate_decoder, render_decoder
from sublayer.commands.evaluate_encoder import DEFAULT_PAIRS, Amount, evaluate_encoder, render_encoder
from sublayer.commands.evaluate_translation import Search, evaluate_translator, render_translator
from sublayer.commands.reading import other_text, own_split, recipe_of
from sublayer.config.data import INTRINSIC, DataConfig, DocumentRule, SentenceRule
from sublayer.config.limits import LONGEST_WINDOW
from sublayer.errors import ConfigError

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.data.split import Split
    from sublayer.model.transformer import Transformer

EXAMPLE = "sublayer evaluate runs/gpt --split test --stride 64"


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
            min=1,
            max=LONGEST_WINDOW,
            help="Tokens between windows: 1 scores each token with the full context, more costs less. "
            "Default: half the context.",
        ),
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            "--pairs", min=1, max=1_000_000_000, help="Pairs of texts that an encoder judges, at least. Default: 2000."
        ),
    ] = None,
    beam: BeamOption = None,
    rule: RuleOption = None,
    penalty: PenaltyOption = None,
    share: ShareOption = None,
    more: MoreOption = None,
    average: AverageOption = None,
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="Score a translator's text in lower case, on both sides.")
    ] = False,
    compounds: Annotated[
        bool,
        typer.Option(
            "--compounds",
            help="Also score a translator's words after every hyphen within a word was made one of its own (WMT14): "
            "higher than BLEU otherwise is.",
        ),
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            help="Another translator, or a file with a translation of each line: is the difference more than chance?",
        ),
    ] = None,
    batch: BatchOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score a decoder on every token of a text but the first, once: what it costs per token, byte, character and word.

    An encoder predicts hidden tokens, and judges whether texts belong together: next sentence (nsp) and sentence order
    (sop), whichever it was trained on. A translator translates, and is scored against the text's own translations. The
    arithmetic is that of the saved weights, float32, whatever the precision of training was.
    """
    from sublayer.load import load
    from sublayer.machine import choose_device
    from sublayer.model.encoder import Encoder
    from sublayer.model.encoder_decoder import EncoderDecoder

    chosen = choose_device(device)
    asked = _Text(run, split, path, corpus, documents)
    asked.check()
    model = load(run, device=chosen, average=average)
    recipe = recipe_of(run)
    if isinstance(model, EncoderDecoder):
        if (path, corpus, documents, stride, pairs) != (None,) * 5:
            raise ConfigError("a translator is scored on a split of its own text: leave out all but --split")
        settings = beam_settings(recipe, beam=beam, rule=rule, penalty=penalty, share=share, more=more)
        search = Search(settings, batch or 32, average, chosen)
        scores = evaluate_translator(
            run, model, recipe, split or "valid", search, lowercase=lowercase, compounds=compounds, against=against
        )
        emit(scores, as_json, render_translator)
        return
    if (beam, rule, penalty, share, more, against, lowercase, compounds) != (None,) * 6 + (False,) * 2:
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
    windows = choose_windows(model, recipe, stride, batch)
    text = asked.read(model, recipe, "none")
    scores = {**evaluate_decoder(model, recipe, text, windows), **_source(text, path), "run": str(run)}
    emit(scores, as_json, render_decoder)


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


def _source(text: "Split", path: str | None) -> dict[str, Any]:
    return {"split": None if path else text.name, "sources": list(text.sources), "sha256": text.store.sha256}
