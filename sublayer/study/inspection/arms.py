"""What was measured inside the runs of each arm, read from beside them."""

from collections.abc import Sequence
from dataclasses import replace

from sublayer.errors import CheckpointError
from sublayer.study.arm_runs import ArmRuns
from sublayer.study.inspection.asked import Inspecting
from sublayer.study.inspection.kept import LAYERS, read_layers
from sublayer.study.results import ArmResult


def with_layers(
    arms: Sequence[ArmResult], runs: Sequence[ArmRuns], asked: Inspecting | None
) -> tuple[ArmResult, ...]:
    """Return the arms with what was measured of the layers of their runs, if it was asked.

    Raises CheckpointError where that is damaged.
    """
    if asked is None:
        return tuple(arms)
    inspected = []
    for arm, own in zip(arms, runs, strict=True):
        layers = {}
        for seed, outcome in own.outcomes.items():
            found = read_layers(outcome.path, asked)
            if found is not None:
                layers[seed] = found
        counts = {len(found.changes) for found in layers.values()}
        if len(counts) > 1:
            raise CheckpointError(
                f"{LAYERS} of {arm.name} is damaged in one of its runs, which differ in their "
                "blocks: remove these files, and the same command makes them anew"
            )
        inspected.append(replace(arm, layers=layers))
    return tuple(inspected)
