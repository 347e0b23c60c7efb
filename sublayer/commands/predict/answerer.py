"""The models that ``sublayer predict`` answers by: a run's, or several runs' together."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublayer.errors import ConfigError
from sublayer.system.stages import stage

if TYPE_CHECKING:
    import torch

    from sublayer.objective.supervised.answering import Answerer
    from sublayer.objective.supervised.text import Writing


def load_answerer(
    runs: Sequence[Path],
    task: str | None,
    device: str | None,
    average: int | None,
    batch: int | None,
    dtype: "torch.dtype | None" = None,
    writing: "Mapping[str, Any] | None" = None,
) -> "Answerer":
    """Load what answers rows; ``writing`` has the options of decoding that were given.

    Raises CheckpointError for a run that is not there, and ConfigError where runs do not answer the
    same.
    """
    with stage("starting PyTorch"):
        from sublayer.loading import load
        from sublayer.objective.supervised.answering import Answerer
        from sublayer.objective.supervised.ensemble.members import find_members
        from sublayer.objective.supervised.ensemble.together import TogetherAnswerer
        from sublayer.system.machine import choose_device

    decoding = _writing(**writing or {})
    if len(runs) > 1:
        if decoding is not None:
            raise ConfigError(
                "several runs answer by the average of probabilities, which has no decoding: leave "
                "out --beam, --temperature, --top-k, --top-p and --seed"
            )
        find_members(runs)
    on = choose_device(device)
    models = [load(run, device=on, dtype=dtype, average=average) for run in runs]
    if len(models) == 1:
        return Answerer(models[0], task, batch=batch, writing=decoding)
    return TogetherAnswerer(models, list(map(str, runs)), task, batch=batch)


def _writing(
    beam: int | None = None,
    length_penalty: float | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
) -> "Writing | None":
    """Return how texts are decoded; None where no option was given."""
    from sublayer.decode.sample import Sampling
    from sublayer.objective.supervised.text import Writing

    drawn = (temperature, top_k, top_p, seed)
    if beam is None and length_penalty is None and all(each is None for each in drawn):
        return None
    sampling = None
    if any(each is not None for each in drawn):
        sampling = Sampling(1.0 if temperature is None else temperature, top_k, top_p)
    return Writing(beam or 1, length_penalty, sampling, seed or 0)


def as_dtype(precision: str) -> "torch.dtype | None":
    """Return what weights are converted to; None: what they are loaded as."""
    if precision != "bfloat16":
        return None
    import torch

    return torch.bfloat16
