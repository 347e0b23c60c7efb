"""Scoring of a study's runs: the split, the context of each token, the number of tokens."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from sublayer.config.recipe import Recipe
from sublayer.config.table import LONGEST_WINDOW, MOST_BATCH_TOKENS, Table
from sublayer.counts import count
from sublayer.errors import ConfigError

if TYPE_CHECKING:
    from sublayer.data.prepare import Data
    from sublayer.data.store import Split

_NAMES = {"valid": "validation", "test": "test"}


class Scoring(Table):
    """``score`` of a study or of its scale: the split, windows and tokens of scoring.

    ``stride`` and ``tokens`` are for decoders, whose text is scored in windows: the tokens between
    window starts (1 gives each token the full context; with ``context`` windows do not overlap),
    and the most scored tokens, spread evenly, the same for all arms. By default, every token is
    scored, after at least half a context.
    """

    split: Literal["valid", "test"] = "test"
    stride: Annotated[int, Field(ge=1, le=LONGEST_WINDOW)] | Literal["context"] | None = None
    tokens: int | None = Field(None, ge=1, le=MOST_BATCH_TOKENS)

    @property
    def is_whole_test(self) -> bool:
        """Return whether all of the test split is scored, the default of a study."""
        return self == WHOLE_TEST

    @property
    def split_name(self) -> str:
        """Name the split in words."""
        return _NAMES[self.split]

    def check(self, study: str, arms: Iterable[tuple[str, Recipe]]) -> None:
        """Raise ConfigError if an arm, by its name, cannot be scored with this stride."""
        if self.stride is None and self.tokens is None:
            return
        for arm, recipe in arms:
            if not recipe.objective.is_scored_in_windows:
                raise ConfigError(
                    f"{study}: score.stride and score.tokens are of decoders, and {arm} has "
                    f"objective.kind = {recipe.objective.kind}: give score.split alone"
                )
            if isinstance(self.stride, int) and self.stride > recipe.data.context:
                raise ConfigError(
                    f"{study}: score.stride = {self.stride} is more than data.context = "
                    f"{recipe.data.context} of {arm}, which would leave tokens out: give a smaller "
                    'one, or "context"'
                )

    def stride_of(self, recipe: Recipe) -> int:
        """Return the tokens between one window and the next."""
        match self.stride:
            case None:
                return max(1, recipe.data.context // 2)
            case "context":
                return recipe.data.context
            case stride:
                return stride

    def find(self, data: "Data") -> "Split | None":
        """Return the scored split, if the text has one."""
        return data.valid if self.split == "valid" else data.test

    def split_of(self, data: "Data") -> "Split":
        """Return the scored split of a text that has one."""
        split = self.find(data)
        assert split is not None, "a comparison without a held-out split is refused"
        return split

    def describe(self, recipe: Recipe) -> str:
        """Name the scored text, as it follows "scored on"; ``recipe`` is the first arm's."""
        text = f"the {self.split_name} split"
        if not recipe.objective.is_scored_in_windows:
            return text
        if self.tokens is not None:
            text = f"{count(self.tokens, 'token')} spread over {text}"
        match self.stride:
            case None:
                return f"{text}, each token with at least half a context before it"
            case 1:
                return f"{text}, each token behind the full context"
            case "context":
                return f"{text}, in windows that do not overlap"
            case stride:
                return f"{text}, in windows {stride:,} tokens apart"


WHOLE_TEST = Scoring()
"""All of the test split, the default of a study."""
