"""The models that ``sublayer predict`` answers by: a run's, or several runs' together."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sublayer.system.stages import stage

if TYPE_CHECKING:
    import torch

    from sublayer.objective.supervised.answering import Answerer


def load_answerer(
    runs: Sequence[Path],
    task: str | None,
    device: str | None,
    average: int | None,
    batch: int | None,
    dtype: "torch.dtype | None" = None,
) -> "Answerer":
    """Load what answers rows.

    Raises CheckpointError for a run that is not there, and ConfigError where runs do not answer the
    same.
    """
    with stage("starting PyTorch"):
        from sublayer.loading import load
        from sublayer.objective.supervised.answering import Answerer
        from sublayer.objective.supervised.ensemble.members import find_members
        from sublayer.objective.supervised.ensemble.together import TogetherAnswerer
        from sublayer.system.machine import choose_device

    if len(runs) > 1:
        find_members(runs)
    on = choose_device(device)
    models = [load(run, device=on, dtype=dtype, average=average) for run in runs]
    if len(models) == 1:
        return Answerer(models[0], task, batch=batch)
    return TogetherAnswerer(models, list(map(str, runs)), task, batch=batch)


def as_dtype(precision: str) -> "torch.dtype | None":
    """Return what weights are converted to; None: what they are loaded as."""
    if precision != "bfloat16":
        return None
    import torch

    return torch.bfloat16
