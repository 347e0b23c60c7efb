"""Texts that models are scored on: a run's text, or any other read by the run's rules."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sublayer.config.data import HUB, INTRINSIC, DataConfig, DocumentRule, SentenceRule
from sublayer.config.load import read_run_recipe
from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.files.checkpoints import read_record
from sublayer.system.terminal import display, note, stage
from sublayer.text_model import TextModel

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.data.store import Split
    from sublayer.data.tokenizers.base import Tokenizer


def recipe_of(run: Path) -> "Recipe | None":
    """Read the resolved recipe of the run that a folder belongs to; None for other folders.

    Raises ConfigError if it is not the recipe of a run.
    """
    from sublayer.config.load import find_recipe

    path = find_recipe(run)
    return None if path is None else read_run_recipe(path)


def own_split(
    run: Path, recipe: "Recipe | None", model: TextModel, name: Literal["valid", "test"]
) -> "Split":
    """Prepare a split of a run's text.

    Raises ConfigError if the model belongs to no run, DataError if the text has changed since
    training, CheckpointError if the run's record is damaged.
    """
    from sublayer.config.load import find_recipe
    from sublayer.data.prepare import prepare
    from sublayer.runs.run import describe_small_test

    path = find_recipe(run)
    split: Split | None = None
    if path is not None and recipe is not None and recipe.data.tasks is None:
        data = prepare(recipe.data, tokenizer=_tokenizer_of(run, model), trains=False)
        split = getattr(data, name)
    if path is None or split is None:
        raise ConfigError(f"{run} has no {name} split of its own text: give a text (--path)")
    record = read_record(path.parent)
    # An unfinished run has no record to compare with.
    recorded = None if record is None else record["data"]["checksums"].get(name)
    if recorded not in (None, split.store.sha256):
        raise DataError(
            f"the text of {run} has changed since training: restore it, or give it by --path"
        )
    small = describe_small_test(data) if name == "test" else None
    if small:
        note(small)
    return split


def _tokenizer_of(run: Path, model: TextModel) -> "Tokenizer":
    if model.tokenizer is None:
        raise CheckpointError(f"{run} has no tokenizer.json, which encodes its text")
    return model.tokenizer


def other_text(
    run: Path,
    model: TextModel,
    path: str | None,
    corpus: str | None,
    name: Literal["valid", "test"],
    *,
    sentences: SentenceRule = "none",
    documents: DocumentRule | None = None,
    text_field: str = "text",
    shares: str | None = None,
) -> "Split":
    """Prepare another text for a model: all of ``path``, or a split of a named corpus.

    ``sentences``, ``documents`` and ``text_field`` are as in ``[data]``; ``shares`` divide a corpus
    without splits as in training.

    Raises CheckpointError if the model has no tokenizer, ConfigError and DataError for the text.
    """
    from sublayer.data.prepare import prepare_text

    tokenizer = _tokenizer_of(run, model)
    with stage("reading the text"):
        say_about_files(path if corpus is None else None, documents)
        return prepare_text(
            tokenizer,
            path=path,
            corpus=corpus,
            split=name,
            sentences=sentences,
            documents=documents,
            text_field=text_field,
            shares=shares,
        )


def say_about_files(path: str | None, documents: DocumentRule | None) -> None:
    """Report files of a text that are not UTF-8, and text files that look like records."""
    from sublayer.data.text.files import describe_files

    if path is not None and not path.startswith(HUB):
        for line in describe_files(path, seeks_records=documents is None, as_options=True):
            note(line)


class TokenProgress:
    """Tokens done so far, as the stage text of their reader.

    ``done`` is a participle, such as "read".
    """

    def __init__(self, done: str, unit: str = "tokens") -> None:
        self._done, self._unit = done, unit

    def __call__(self, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` tokens, more than 0, are done."""
        share = done / total
        text = f"{self._done} {done:,} of {total:,} {self._unit} ({share:.0%})"
        display().change_innermost(text, share)


@dataclass(frozen=True)
class ScoredText:
    """The scored text: a split of the run's text, all of another, or a split of a corpus."""

    run: Path
    split: Literal["valid", "test"] | None
    path: str | None
    corpus: str | None
    documents: DocumentRule | None
    text_field: str | None = None

    def check(self) -> None:
        """Raise ConfigError for options that contradict each other."""
        is_split = self.split is not None or self.corpus not in (None, INTRINSIC)
        if self.path is not None and is_split:
            superfluous = "--split" if self.split else "--corpus"
            raise ConfigError(f"--path scores the whole text: leave out {superfluous}")
        if self.path is not None and self.corpus is None:
            return
        for name, value in (("--documents", self.documents), ("--text-field", self.text_field)):
            if value is not None:
                raise ConfigError(
                    f"{name} applies only to --path without --corpus: give such a --path, or "
                    "leave it out"
                )

    def read_own(self, model: TextModel, recipe: "Recipe | None") -> "Split":
        """Read the split of the run's text. Raises as ``own_split`` does."""
        return own_split(self.run, recipe, model, self.split or "valid")

    def read(self, model: TextModel, recipe: "Recipe | None", sentences: SentenceRule) -> "Split":
        """Read the text, cut into sentences by a rule unless it is the run's.

        Options default to the settings of the run's text. Raises as ``own_split`` and
        ``other_text`` do.
        """
        if self.path is None and self.corpus is None:
            return self.read_own(model, recipe)
        data = DataConfig() if recipe is None else recipe.data
        return other_text(
            self.run,
            model,
            self.path,
            self.corpus,
            self.split or "valid",
            sentences=sentences,
            documents=self.documents or data.documents,
            text_field=self.text_field or data.text_field,
            shares=data.split,
        )
