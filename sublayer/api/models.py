"""The commands on models, as functions that return what ``--json`` prints."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sublayer.api.ask import (
    PathOrText,
    as_path,
    as_text,
    ask,
)
from sublayer.api.results import (
    Result,
)

if TYPE_CHECKING:
    pass


def inspect_layers(
    *runs: PathOrText,
    path: PathOrText | None = None,
    tokens: int | None = None,
    beyond: int | None = None,
    out: PathOrText | None = None,
    batch: int | None = None,
    device: str | None = None,
) -> Result:
    """Measure what each block of models does to the tokens of a text.

    Distances, angles in degrees and norms, over ``tokens`` tokens at most (8192) of each run's
    validation split, or of the text of ``path``; a block that all layers share is run ``beyond``
    times more; ``out`` is an SVG file of the plot. Raises ConfigError for encoder-decoders.
    """
    return _inspect("layers", runs, path, tokens, out, batch, device, beyond)


def inspect_splitting(
    *runs: PathOrText,
    path: PathOrText | None = None,
    tokens: int | None = None,
    out: PathOrText | None = None,
    batch: int | None = None,
    device: str | None = None,
) -> Result:
    """Measure how far each layer's step is from following its own flows; arguments as above.

    Without runs, the errors of splittings on equations whose flows are known.
    """
    return _inspect("splitting", runs, path, tokens, out, batch, device)


def inspect_paths(
    *runs: PathOrText,
    path: PathOrText | None = None,
    tokens: int | None = None,
    out: PathOrText | None = None,
    device: str | None = None,
) -> Result:
    """Follow the first tokens of a text through every sub-layer of models.

    They are the first ``tokens`` (16) of one window of each run's validation split, or of the text
    of ``path``; ``out`` is an SVG file of their paths. Coordinates are in the plane of the two
    principal components of all their states. Raises ConfigError for LSTMs.
    """
    return _inspect("paths", runs, path, tokens, out, None, device)


def _inspect(
    what: str,
    runs: Sequence[PathOrText],
    path: PathOrText | None,
    tokens: int | None,
    out: PathOrText | None,
    batch: int | None,
    device: str | None,
    beyond: int | None = None,
) -> Result:
    from sublayer.commands.inspect.command import command

    answer = ask(
        command,
        what=what,
        runs=[as_path(run) for run in runs],
        path=None if path is None else as_text(path),
        tokens=tokens,
        beyond=beyond,
        out=None if out is None else as_path(out),
        batch=batch,
        device=device,
    )
    return Result(answer)
