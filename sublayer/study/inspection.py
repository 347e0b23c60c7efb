"""Inspection of the layers of a study's runs: settings, measurement, the file beside each run.

A run is measured once. Reading imports no PyTorch.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from sublayer.config.limits import MOST_BATCH_TOKENS, MOST_LAYERS
from sublayer.config.model import ModelConfig
from sublayer.config.recipe import Recipe
from sublayer.config.stacks import is_one_block
from sublayer.config.table import Table
from sublayer.counts import count
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.parsing import Count, Number, Typed, check_typed, read_json
from sublayer.files.storage import write_json
from sublayer.inspection.layer_change import (
    QUANTITIES,
    LayerChange,
    Spread,
    finite,
    flat,
    mean_changes,
)

if TYPE_CHECKING:
    from sublayer.data.store import Split
    from sublayer.inspection.sample import Sample


class Inspecting(Table):
    """``inspect`` of a study or of its scale: the measurement of each run once it is scored.

    ``layers`` measures as `sublayer inspect layers` does, over ``tokens`` tokens at most of the
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
        """Describe the measurement and its share of the split that is scored, named in words."""
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


LAYERS = "layers.json"
_REMEDY = "remove the file, and the same command makes it anew"


@dataclass(frozen=True)
class InspectedLayers:
    """The changes that the blocks of a run make to tokens of a held-out text."""

    split: str
    """``valid`` or ``test``."""
    n_tokens: int
    """Read in all."""
    n_windows: int
    changes: Sequence[LayerChange]
    """Block by block; those run beyond the model's layers come last."""


class _Spread(Typed):
    # Null: a token's state was 0, which has no angle.
    mean: Number | None
    quartiles: tuple[Number | None, Number | None, Number | None]


class _Layer(Typed):
    layer: Count
    is_beyond: bool
    distance: _Spread
    cosine: _Spread
    angle_degrees: _Spread
    norm_in: _Spread
    norm_out: _Spread


class _Kept(Typed):
    asked: dict[str, Any]
    split: str
    n_tokens: Count
    n_windows: Count
    changes: tuple[_Layer, ...]


def kept_layers(inspecting: Inspecting, layers: InspectedLayers) -> dict[str, Any]:
    """Return the content of ``LAYERS``: the settings and the measurement."""
    content = {"asked": inspecting.model_dump(exclude_none=True), **asdict(layers)}
    content["changes"] = [_change_to_json(change) for change in layers.changes]
    return content


def read_layers(run: Path, inspecting: Inspecting) -> InspectedLayers | None:
    """Read the measurement of a run; None where there is none, or one of other settings.

    Raises CheckpointError where the file is damaged.
    """
    path = run / LAYERS
    try:
        content = read_json(path, CheckpointError)
        kept = check_typed(content, _Kept, str(path), CheckpointError, has_tuples=True)
    except FileNotFoundError:
        return None
    except CheckpointError as error:
        raise CheckpointError(f"{error}: {_REMEDY}") from None
    if kept.asked != inspecting.model_dump(exclude_none=True):
        return None
    changes = [_change(layer) for layer in kept.changes]
    are_beyond = [change.is_beyond for change in changes]
    is_counted = [change.layer for change in changes] == list(range(1, len(changes) + 1))
    if not is_counted or all(are_beyond) or are_beyond != sorted(are_beyond):
        raise CheckpointError(f"{path} is damaged: blocks are missing: {_REMEDY}")
    return InspectedLayers(kept.split, kept.n_tokens, kept.n_windows, changes)


def _change(layer: _Layer) -> LayerChange:
    spreads = [_spread(getattr(layer, name)) for name in QUANTITIES]
    return LayerChange(layer.layer, *spreads, is_beyond=layer.is_beyond)


def _spread(kept: _Spread) -> Spread:
    lower, median, upper = map(_number, kept.quartiles)
    return Spread(_number(kept.mean), (lower, median, upper))


def _number(kept: float | None) -> float:
    return math.nan if kept is None else kept


def _change_to_json(change: LayerChange) -> dict[str, Any]:
    content: dict[str, Any] = {"layer": change.layer, "is_beyond": change.is_beyond}
    for name in QUANTITIES:
        spread = change.spread(name)
        quartiles = [finite(value) for value in spread.quartiles]
        content[name] = {"mean": finite(spread.mean), "quartiles": quartiles}
    return content


def inspect_run(
    run: Path, recipe: Recipe, split: "Split", inspecting: Inspecting, *, device: str | None
) -> None:
    """Measure the layers of a trained run and keep that beside it, unless it is there.

    ``device`` is as on the command line; None for the best there is. Raises DataError where the
    split is too short, and CheckpointError where the kept file, or the model, is damaged.
    """
    from sublayer.inspection.layers import measure_layers
    from sublayer.loading import load
    from sublayer.objective.evaluation import batch_sequences
    from sublayer.system.machine import choose_device

    if read_layers(run, inspecting) is not None:
        return
    model = load(run, device=choose_device(device)).model
    sample = sample_of(recipe, split, inspecting)
    changes = measure_layers(
        model,
        sample,
        batch_sequences=batch_sequences(model, recipe.data.context),
        beyond=inspecting.n_beyond(model.config),
    )
    layers = InspectedLayers(split.name, sample.n_tokens, len(sample), changes)
    write_json(run / LAYERS, kept_layers(inspecting, layers))


def sample_of(recipe: Recipe, split: "Split", inspecting: Inspecting) -> "Sample":
    """Take the sample of a split, the same for all runs of an arm.

    Raises DataError where the split is shorter than a window.
    """
    from sublayer.inspection.sample import spread_windows

    return spread_windows(
        split,
        context=recipe.data.context,
        max_tokens=inspecting.tokens,
        respect_boundaries=recipe.data.boundaries == "respect",
    )


@dataclass(frozen=True)
class LayerSummary:
    """A quantity over the blocks of an arm, each the mean over tokens and runs."""

    mean: float
    """Over the model's own blocks."""
    from_block_to_block: float | None
    """By how much two neighbours differ, the mean of the model's own; None of a single block."""
    last: float
    """Of the model's last block."""
    lowest_beyond: float | None = None
    """Of those that were run beyond it; None where none was."""
    highest_beyond: float | None = None


def mean_layers(layers: Mapping[int, InspectedLayers]) -> list[LayerChange]:
    """Average each block of an arm over its runs, one at least, by seed."""
    return mean_changes([of_run.changes for of_run in layers.values()])


def summarize(changes: Sequence[LayerChange], quantity: str) -> LayerSummary:
    """Summarize the means of a quantity of blocks."""
    inside = [change.spread(quantity).mean for change in changes if not change.is_beyond]
    beyond = [change.spread(quantity).mean for change in changes if change.is_beyond]
    steps = [abs(after - before) for before, after in pairwise(inside)]
    return LayerSummary(
        mean=_mean(inside),
        from_block_to_block=_mean(steps) if steps else None,
        last=inside[-1],
        lowest_beyond=min(beyond, default=None),
        highest_beyond=max(beyond, default=None),
    )


def layers_to_json(layers: Mapping[int, InspectedLayers]) -> dict[str, Any]:
    """Return an arm's layers as JSON: the summary of each drawn quantity, and every run."""
    changes = mean_layers(layers)
    summaries = {}
    for name in ("distance", "angle_degrees"):
        numbers = asdict(summarize(changes, name)).items()
        summaries[name] = {key: None if value is None else finite(value) for key, value in numbers}
    runs = []
    for seed, of_run in layers.items():
        read = {"split": of_run.split, "tokens": of_run.n_tokens, "windows": of_run.n_windows}
        runs.append({"seed": seed, **read, "layers": list(map(flat, of_run.changes))})
    return {"summary": summaries, "runs": runs}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
