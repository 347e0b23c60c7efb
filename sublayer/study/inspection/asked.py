"""``inspect`` of a study's file: what is measured inside each of its runs."""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from sublayer.config.architecture.stacks import is_one_block
from sublayer.config.limits import MOST_BATCH_TOKENS, MOST_LAYERS
from sublayer.config.model import ModelConfig
from sublayer.config.recipe import Recipe
from sublayer.config.table import Table
from sublayer.counts import count
from sublayer.errors import ConfigError


class Inspecting(Table):
    """``inspect`` of a study or of its scale: what is measured of each run once it is scored.

    ``layers`` is what `sublayer inspect layers` measures, over ``tokens`` tokens at most of the
    split that the study scores, in whole windows spread evenly over it. A model that is one block
    runs it ``beyond`` times more than it has layers; left out, as many times again.
    """

    what: Literal["layers"]
    tokens: int = Field(8192, ge=1, le=MOST_BATCH_TOKENS)
    beyond: int | None = Field(None, ge=0, le=MOST_LAYERS)

    def n_beyond(self, model: ModelConfig) -> int:
        """Return how often a model's block is run beyond its layers; 0 unless it has one alone."""
        if not is_one_block(model):
            return 0
        return model.n_layers if self.beyond is None else self.beyond

    def describe(self, split_name: str) -> str:
        """Say what is measured, and on how much of the split that is scored, named in words."""
        return (
            "what each layer does to a token is measured and drawn, over "
            f"{count(self.tokens, 'token')} of the {split_name} split at most"
        )

    def check(self, study: str, arms: Iterable[tuple[str, Recipe]], *, has_stages: bool) -> None:
        """Raise ConfigError for arms, by their names, of which there is nothing to inspect."""
        if has_stages:
            raise ConfigError(
                f"{study}: inspect is of studies without stages: leave out inspect, or [[stages]]"
            )
        models = []
        for arm, recipe in arms:
            models.append(recipe.model)
            if recipe.model.kind == "encoder-decoder":
                raise ConfigError(
                    f"{study}: inspect.what = layers is of a single stack, and {arm} is an "
                    "encoder-decoder, whose blocks read two texts: leave out inspect"
                )
            if recipe.data.tasks is not None:
                raise ConfigError(
                    f"{study}: inspect reads a text, and {arm} learns from examples of tasks: "
                    "leave out inspect"
                )
        if self.beyond and not any(map(is_one_block, models)):
            raise ConfigError(
                f"{study}: inspect.beyond = {self.beyond} goes on with the block that all layers "
                "share, and no arm has one, with model.share = all: leave it out"
            )
