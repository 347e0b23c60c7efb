"""Rows answered by fine-tuned models, and texts as vectors."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sublayer.api.arguments import (
    Average,
    Beam,
    Device,
    Model,
    Seed,
    Temperature,
    TopK,
    TopP,
    as_paths,
    loaded,
)
from sublayer.config.limits import LARGEST_PENALTY, MOST_ROWS
from sublayer.errors import ConfigError
from sublayer.options import Option, PathText, checked
from sublayer.system.stages import stage

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from sublayer.objective.supervised.answering import Answerer
    from sublayer.objective.supervised.text import Writing
    from sublayer.tasks.predicting import NamedPrediction


@checked
def predict(
    run: PathText | Sequence[PathText],
    rows: Any,
    *,
    task: Annotated[
        str | None, Option("The task, of a model that answers several.", metavar="NAME")
    ] = None,
    beam: Beam = None,
    length_penalty: Annotated[
        float | None,
        Option(
            "Of a beam, the exponent p of n^p, which divides the log probability of n tokens: 0 "
            "favours short texts, more longer ones. Default: 1.",
            least=-LARGEST_PENALTY,
            most=LARGEST_PENALTY,
        ),
    ] = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    average: Average = None,
    batch: Annotated[
        int | None,
        Option(
            "Rows computed at a time; affects speed and memory, and what sampling draws.",
            least=1,
            most=MOST_ROWS,
        ),
    ] = None,
    device: Device = None,
    dtype: "torch.dtype | None" = None,
) -> "list[NamedPrediction]":
    """Answer rows by a fine-tuned model: texts, tuples of texts, or mappings by the fields' names.

    A DataFrame, an Arrow table or a dict of columns is its rows; None and NaN are rows without a
    text. Of several models, given as a list, the average of their probabilities, numbers or scores
    of spans answers. ``task`` names one of several tasks; ``batch`` rows are computed at a time, in
    ``dtype``, as ``load`` takes it. A model that writes decodes greedily, by a ``beam``, or samples
    by ``temperature``, ``top_k``, ``top_p`` and ``seed``. A row with an empty text is not answered.
    Raises ConfigError for a model that answers no task, or not the same as another, and DataError
    for a row that is none of these.
    """
    from sublayer.objective.supervised.answering import predict_rows_by

    decoding = (beam, length_penalty, temperature, top_k, top_p, seed)
    answerer = load_answerer(as_paths(run), task, decoding, average, batch, device, dtype)
    return predict_rows_by(answerer, rows)


def load_answerer(
    runs: Sequence[Path],
    task: str | None,
    decoding: Sequence[Any],
    average: int | None,
    batch: int | None,
    device: str | None,
    dtype: "torch.dtype | None",
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

    writing = _writing(*decoding)
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

    drawing = (temperature, top_k, top_p, seed)
    if (beam, length_penalty, *drawing) == (None,) * 6:
        return None
    sampling = None
    if drawing != (None,) * 4:
        sampling = Sampling(1.0 if temperature is None else temperature, top_k, top_p)
    return Writing(beam or 1, length_penalty, sampling, seed or 0)


def as_dtype(precision: str) -> "torch.dtype | None":
    """Return the type that weights are converted to; None: the type that they are loaded as."""
    if precision != "bfloat16":
        return None
    import torch

    return torch.bfloat16


@checked
def embed(
    run: Model,
    texts: Iterable[str],
    *,
    pool: Annotated[
        Literal["mean", "first", "last"],
        Option(
            "The mean of the hidden states of a line's tokens, special ones included, or the "
            "state of the first token or the last."
        ),
    ] = "mean",
    normalize: Annotated[bool, Option("Scale each vector to a length of 1.")] = False,
    batch: Annotated[
        int,
        Option("Lines computed at a time; affects speed and memory only.", least=1, most=MOST_ROWS),
    ] = 32,
    device: Device = None,
) -> "NDArray[np.float32]":
    """Return a vector of each text, ``[N, D]``: the final hidden states of its tokens, pooled.

    Raises ConfigError as ``embed`` of a loaded model does.
    """
    from sublayer.evaluation.vectors import embed_all

    model = loaded(run, device)
    return embed_all(model, texts, pool=pool, normalize=normalize, batch=batch)
