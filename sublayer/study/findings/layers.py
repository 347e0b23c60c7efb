"""What the layers of an arm do: its blocks, averaged over runs, in a few numbers."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from sublayer.inspection.layer_change import LayerChange, finite, flat, mean_changes
from sublayer.study.results import ArmResult


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


def mean_layers(arm: ArmResult) -> list[LayerChange]:
    """Average each block of an arm over its runs, of which one at least was inspected."""
    return mean_changes([found.changes for found in arm.layers.values()])


def summarize(changes: Sequence[LayerChange], quantity: str) -> LayerSummary:
    """Summarize the means of a quantity of blocks."""
    own = [change.spread(quantity).mean for change in changes if not change.is_beyond]
    beyond = [change.spread(quantity).mean for change in changes if change.is_beyond]
    steps = [abs(after - before) for before, after in pairwise(own)]
    return LayerSummary(
        mean=_mean(own),
        from_block_to_block=_mean(steps) if steps else None,
        last=own[-1],
        lowest_beyond=min(beyond, default=None),
        highest_beyond=max(beyond, default=None),
    )


def layers_to_json(arm: ArmResult) -> dict[str, Any]:
    """Return what JSON has of an arm's layers: the summary of each drawn quantity, every run's."""
    changes = mean_layers(arm)
    summaries = {}
    for name in ("distance", "angle_degrees"):
        numbers = asdict(summarize(changes, name)).items()
        summaries[name] = {key: None if each is None else finite(each) for key, each in numbers}
    runs = []
    for seed, found in arm.layers.items():
        read = {"split": found.split, "tokens": found.n_tokens, "windows": found.n_windows}
        runs.append({"seed": seed, **read, "layers": list(map(flat, found.changes))})
    return {"summary": summaries, "runs": runs}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
