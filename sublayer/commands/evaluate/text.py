"""The text that ``sublayer evaluate`` scores."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sublayer.commands.shared.text_options import other_text, own_split
from sublayer.config.data import DataConfig
from sublayer.config.text.corpora import INTRINSIC
from sublayer.config.text.text_fields import DocumentRule, SentenceRule
from sublayer.errors import ConfigError

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.data.split import Split
    from sublayer.model.transformer import Transformer


@dataclass(frozen=True)
class ScoredText:
    """Which text is scored: a split of the run's own, all of another, or a split of a corpus."""

    run: Path
    split: Literal["valid", "test"] | None
    path: str | None
    corpus: str | None
    documents: DocumentRule | None
    text_field: str | None = None

    @property
    def split_name(self) -> Literal["valid", "test"]:
        """Return the split that was asked for, or else the default."""
        return self.split or "valid"

    def check(self) -> None:
        """Raise ConfigError for options that contradict each other."""
        is_corpus = self.corpus not in (None, INTRINSIC)
        is_split = self.split is not None or is_corpus
        if self.path is not None and is_split:
            superfluous = "--split" if self.split else "--corpus"
            raise ConfigError(f"--path scores all of a text: leave out {superfluous}")
        is_path_alone = self.path is not None and self.corpus is None
        for name, value in (("--documents", self.documents), ("--text-field", self.text_field)):
            if value is not None and not is_path_alone:
                raise ConfigError(
                    f"{name} says how the text of --path is read: give a --path alone, or leave it "
                    "out"
                )

    def read_own(self, model: "Transformer", recipe: "Recipe | None") -> "Split":
        """Read the split of the run's own text. Raises as ``own_split`` does."""
        return own_split(self.run, recipe, model, self.split_name)

    def read(
        self, model: "Transformer", recipe: "Recipe | None", sentences: SentenceRule
    ) -> "Split":
        """Read the text, cut into sentences by a rule unless it is the run's own.

        What the options leave open is read as the run read its own text. Raises as ``own_split``
        and ``other_text`` do.
        """
        if self.path is None and self.corpus is None:
            return self.read_own(model, recipe)
        data = DataConfig() if recipe is None else recipe.data
        return other_text(
            self.run,
            model,
            self.path,
            self.corpus,
            self.split_name,
            sentences=sentences,
            documents=self.documents or data.documents,
            text_field=self.text_field or data.text_field,
            shares=data.split,
        )
