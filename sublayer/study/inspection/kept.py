"""What was measured of the layers of a run, and the file beside it that keeps that."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sublayer.errors import CheckpointError
from sublayer.files.parsing import read_json
from sublayer.files.typed import Count, Number, Typed, check_typed
from sublayer.inspection.layer_change import QUANTITIES, LayerChange, Spread, finite
from sublayer.study.inspection.asked import Inspecting

LAYERS = "layers.json"
_REMEDY = "remove the file, and the same command makes it anew"


@dataclass(frozen=True)
class InspectedLayers:
    """What the blocks of a run do to tokens of a text that is held out."""

    split: str
    """``valid`` or ``test``."""
    n_tokens: int
    """Read in all."""
    n_windows: int
    changes: Sequence[LayerChange]
    """Block by block; what was run beyond the model's own comes last."""


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


def kept_layers(asked: Inspecting, found: InspectedLayers) -> dict[str, Any]:
    """Return what ``LAYERS`` keeps: what was asked, and what was found."""
    content = {"asked": asked.model_dump(exclude_none=True), **asdict(found)}
    content["changes"] = [_change_to_json(change) for change in found.changes]
    return content


def read_layers(run: Path, asked: Inspecting) -> InspectedLayers | None:
    """Read what was measured of a run; None where nothing was, or something else was asked.

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
    if kept.asked != asked.model_dump(exclude_none=True):
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
