"""The insides of models, measured from Python."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from sublayer.api.ask import as_path
from sublayer.api.parameters import Device
from sublayer.api.results import Result
from sublayer.config.limits import MOST_LAYERS, MOST_ROWS
from sublayer.errors import ConfigError
from sublayer.files.paths import resolved
from sublayer.options import Option, PathText, checked

TextPath = Annotated[
    PathText | None,
    Option(
        "The text to read: a file, a folder or a glob. Default: each run's validation split.",
        metavar="PATH",
    ),
]
Tokens = Annotated[
    int | None,
    Option(
        "The most tokens to read, in windows spread evenly over the text; at least one "
        "window. Default: 8192. Of paths the most tokens to follow, the first of one window: 2 to "
        "256. Default: 16.",
        least=1,
        most=1_000_000_000,
    ),
]
PlotFile = Annotated[
    PathText | None, Option("The new .svg file to draw a plot to.", metavar="FILE")
]
Batch = Annotated[
    int | None,
    Option("Windows computed at a time; affects speed and memory only.", least=1, most=MOST_ROWS),
]


@checked
def inspect_layers(
    *runs: PathText,
    path: TextPath = None,
    tokens: Tokens = None,
    beyond: Annotated[
        int | None,
        Option(
            "Of layers: run the block that all layers share so many times more than the model "
            "does.",
            least=1,
            most=MOST_LAYERS,
        ),
    ] = None,
    out: PlotFile = None,
    batch: Batch = None,
    device: Device = None,
) -> Result:
    """Measure what each block of models does to the tokens of a text.

    Distances, angles in degrees and norms, over ``tokens`` tokens at most (8192) of each run's
    validation split, or of the text of ``path``; a block that all layers share is run ``beyond``
    times more; ``out`` is an SVG file of the plot. Raises ConfigError for encoder-decoders.
    """
    models, file = _checked(runs, out)
    if not models:
        raise ConfigError("inspect layers needs a run: name one or more")
    from sublayer.commands.inspect import layers
    from sublayer.commands.inspect.samples import SampleOptions

    options = SampleOptions(_text(path), tokens or 8192, batch, device)
    return Result(layers.inspect_layers(models, options, beyond, file), layers.render_layers)


@checked
def inspect_splitting(
    *runs: PathText,
    path: TextPath = None,
    tokens: Tokens = None,
    out: PlotFile = None,
    batch: Batch = None,
    device: Device = None,
) -> Result:
    """Measure how far each layer's step is from following its own flows; arguments as above.

    Without runs, the errors of splittings on equations whose flows are known.
    """
    models, file = _checked(runs, out)
    from sublayer.commands.inspect import splitting
    from sublayer.commands.inspect.samples import SampleOptions

    options = SampleOptions(_text(path), tokens or 8192, batch, device)
    found = splitting.inspect_splitting(models, options, file)
    return Result(found, splitting.render_splitting)


@checked
def inspect_paths(
    *runs: PathText,
    path: TextPath = None,
    tokens: Tokens = None,
    out: PlotFile = None,
    batch: Batch = None,
    device: Device = None,
) -> Result:
    """Follow the first tokens of a text through every sub-layer of models.

    They are the first ``tokens`` (16) of one window of each run's validation split, or of the text
    of ``path``; ``out`` is an SVG file of their paths. Coordinates are in the plane of the two
    principal components of all their states. Raises ConfigError for LSTMs, and for a ``batch``.
    """
    models, file = _checked(runs, out)
    if not models:
        raise ConfigError("inspect paths needs a run: name one or more")
    from sublayer.commands.inspect import paths
    from sublayer.commands.inspect.samples import SampleOptions

    options = SampleOptions(_text(path), tokens or 16, batch, device)
    return Result(paths.inspect_paths(models, options, file), paths.render_paths)


def _text(path: PathText | None) -> str | None:
    return None if path is None else str(path)


def _checked(runs: Sequence[PathText], out: PathText | None) -> tuple[list[Path], Path | None]:
    """Return the runs and the plot's file; raise ConfigError for a run that is given twice."""
    from sublayer.commands.inspect.plot_file import check_new
    from sublayer.loading import find_model

    models = [as_path(run) for run in runs]
    seen: set[Path] = set()
    for run in models:
        model = resolved(find_model(run))
        if model in seen:
            raise ConfigError(f"{run} is given twice: name each model once")
        seen.add(model)
    file = None if out is None else Path(out)
    if file is not None:
        check_new(file)
    return models, file
