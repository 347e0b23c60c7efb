"""``sublayer inspect``: what happens inside a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from sublayer.api.inspecting import inspect_layers, inspect_paths, inspect_splitting
from sublayer.cli.build import Json, client_of, print_result
from sublayer.errors import ConfigError
from sublayer.options import Argument

EXAMPLE = "sublayer inspect layers runs/book --path book.txt --out layers.svg"

What = Annotated[
    Literal["layers", "splitting", "paths"],
    Argument(
        "layers: the distance and the angle between each block's input and output; splitting: "
        "the error of applying attention and feed-forward network one after the other; paths: "
        "where each sub-layer moves each token.",
        metavar="WHAT",
    ),
]
Runs = Annotated[
    Sequence[Path],
    Argument("Runs, checkpoints, or folders of imported models.", metavar="RUN", complete="runs"),
]
_FUNCTIONS = {
    "layers": inspect_layers,
    "splitting": inspect_splitting,
    "paths": inspect_paths,
}


@client_of(inspect_layers)
def command(
    options: dict[str, Any],
    what: What,
    runs: Runs = (),
    as_json: Json = False,
) -> None:
    """Measure the effect of each block of a model on a text's tokens, and compare models by it.

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
    if "beyond" in options and what != "layers":
        raise ConfigError("--beyond is of inspect layers: leave it out")
    print_result(_FUNCTIONS[what](*runs, **options), as_json)
