"""The models that ``sublayer predict`` answers by: a run's, or several runs' together."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sublayer.errors import ConfigError
from sublayer.system.stages import stage

if TYPE_CHECKING:
    import torch

    from sublayer.objective.supervised.answering import Answerer
    from sublayer.objective.supervised.text import Writing


class Decoding(NamedTuple):
    """Options of models that write their answers; None: not given."""

    beam: int | None = None
    length_penalty: float | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def writing(self) -> "Writing | None":
        """Return how texts are decoded; None where no option was given."""
        from sublayer.decode.sample import Sampling
        from sublayer.objective.supervised.text import Writing

        if self == Decoding():
            return None
        sampling = None
        if self[2:] != (None,) * 4:
            drawn = 1.0 if self.temperature is None else self.temperature
            sampling = Sampling(drawn, self.top_k, self.top_p)
        return Writing(self.beam or 1, self.length_penalty, sampling, self.seed or 0)


def load_answerer(
    runs: Sequence[Path],
    task: str | None,
    device: str | None,
    average: int | None,
    batch: int | None,
    dtype: "torch.dtype | None",
    decoding: Decoding,
) -> "Answerer":
    """Load the model, or the ensemble, that answers rows.

    Raises CheckpointError for a run that is not there, and ConfigError where runs do not answer the
    same.
    """
    with stage("starting PyTorch"):
        from sublayer.loading import load
        from sublayer.objective.supervised.answering import Answerer
        from sublayer.objective.supervised.ensemble import EnsembleAnswerer, find_members
        from sublayer.objective.supervised.text import WRITING_OPTIONS
        from sublayer.system.machine import choose_device

    writing = decoding.writing()
    if len(runs) > 1:
        if writing is not None:
            raise ConfigError(
                "several runs answer by the average of probabilities, which has no decoding: leave "
                f"out {WRITING_OPTIONS}"
            )
        find_members(runs)
    on = choose_device(device)
    models = [load(run, device=on, dtype=dtype, average=average) for run in runs]
    if len(models) == 1:
        return Answerer(models[0], task, batch=batch, writing=writing)
    return EnsembleAnswerer(models, list(map(str, runs)), task, batch=batch)


def as_dtype(precision: str) -> "torch.dtype | None":
    """Return what weights are converted to; None: what they are loaded as."""
    if precision != "bfloat16":
        return None
    import torch

    return torch.bfloat16
