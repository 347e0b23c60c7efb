"""``sublayer inspect``: what happens inside a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from sublayer.commands.inspect.layers import inspect_layers
from sublayer.commands.inspect.paths import inspect_paths
from sublayer.commands.inspect.plot_file import check_new
from sublayer.commands.inspect.samples import SampleOptions
from sublayer.commands.inspect.splitting import inspect_splitting
from sublayer.commands.shared import candidates
from sublayer.commands.shared.base import BatchOption, DeviceOption, JsonOption
from sublayer.config.limits import MOST_LAYERS
from sublayer.errors import ConfigError
from sublayer.files.paths import resolved

EXAMPLE = "sublayer inspect layers runs/book --path book.txt --out layers.svg"

WhatArgument = Annotated[
    Literal["layers", "splitting", "paths"],
    typer.Argument(
        metavar="WHAT",
        help="layers: the distance and the angle between each block's input and output; splitting: "
        "the error of applying attention and feed-forward network one after the other; paths: "
        "where each sub-layer moves each token.",
    ),
]
RunsArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="RUN",
        help="Runs, checkpoints, or folders of imported models.",
        autocompletion=candidates.runs,
    ),
]
PathOption = Annotated[
    str | None,
    typer.Option(
        "--path",
        metavar="PATH",
        help="The text to read: a file, a folder or a glob. Default: each run's validation split.",
    ),
]
TokensOption = Annotated[
    int | None,
    typer.Option(
        "--tokens",
        min=1,
        max=1_000_000_000,
        metavar="N",
        help="The most tokens to read, in windows spread evenly over the text; at least one "
        "window. Default: 8192. Of paths the most tokens to follow, the first of one window: 2 to "
        "256. Default: 16.",
    ),
]
BeyondOption = Annotated[
    int | None,
    typer.Option(
        "--beyond",
        min=1,
        max=MOST_LAYERS,
        metavar="N",
        help="Of layers: run the block that all layers share so many times more than the model "
        "does.",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="The new .svg file to draw a plot to."),
]

_MOST_TOKENS = {"layers": 8192, "splitting": 8192, "paths": 16}


def command(
    what: WhatArgument,
    runs: RunsArgument = None,
    path: PathOption = None,
    tokens: TokensOption = None,
    beyond: BeyondOption = None,
    out: OutOption = None,
    batch: BatchOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure what each block of a model does to the tokens of a text, and compare models by it.

    layers: the L2 distance, the cosine and the angle between each block's input and output, and the
    norms of both: means over tokens, with quartiles (Lan et al. 2020, Fig. 1), computed in the
    precision of the saved weights. A block that all layers share can be run beyond the model's own
    number of layers.

    splitting: without a run, the error of one step of each splitting scheme on differential
    equations whose flows are known (Lu et al. 2019, sec. 3). With runs, how far each layer's step
    is from following the flows of its own attention and feed-forward network.

    paths: the first tokens of a text as particles, from what enters a model through every sub-layer
    of its blocks, drawn in the plane in which their states vary most, as in `sublayer inspect paths
    runs/book --path book.txt --out paths.svg`.
    """
    runs = runs or []
    _check_different(runs)
    if out is not None:
        check_new(out)
    max_tokens = _MOST_TOKENS[what] if tokens is None else tokens
    options = SampleOptions(path, max_tokens, batch, device)
    if beyond is not None and what != "layers":
        raise ConfigError("--beyond is of inspect layers: leave it out")
    if what == "splitting":
        inspect_splitting(runs, options, out, as_json)
        return
    if not runs:
        raise ConfigError(f"inspect {what} needs a run: name one or more")
    if what == "layers":
        inspect_layers(runs, options, beyond, out, as_json)
    else:
        inspect_paths(runs, options, out, as_json)


def _check_different(runs: Sequence[Path]) -> None:
    from sublayer.loading import find_model

    seen: set[Path] = set()
    for run in runs:
        model = resolved(find_model(run))
        if model in seen:
            raise ConfigError(f"{run} is given twice: name each model once")
        seen.add(model)
