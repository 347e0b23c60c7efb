"""Draw the activations of the feed-forward networks and their gradients: ``images/gates.svg``.

``python docs/gates.py``, after a change of the networks.
"""

from pathlib import Path
from typing import Any

import torch

from sublayer.model.kernels.elementwise import FUNCTIONS, Activation, tanh_gelu
from sublayer.plot import file_svg, look

IMAGE = Path(__file__).parent / "images" / "gates.svg"
_SIZE = (7.2, 3.1)
_NAMES = {
    "relu": "ReLU, ReGLU",
    "relu2": "ReLU², ReGLU²",
    "gelu": "GELU, GEGLU",
    "swish": "Swish, SwiGLU",
    "sigmoid": "GLU",
    "identity": "bilinear",
}
"""The networks that have each activation, alone or in their gates."""


def gates_svg() -> str:
    """Plot each activation of -5 to 5, and beside it its derivative, by autograd in float64."""
    functions: dict[str, Activation] = {**FUNCTIONS, "gelu": tanh_gelu}

    def draw(figure: Any) -> None:
        values, slopes = figure.subplots(1, 2)
        for index, (activation, name) in enumerate(_NAMES.items(), start=1):
            x = torch.linspace(-5.0, 5.0, 401, dtype=torch.float64, requires_grad=True)
            y = functions[activation](x)
            (slope,) = torch.autograd.grad(y.sum(), x)
            style = look(index)
            points = x.tolist()
            for axes, numbers in ((values, y.tolist()), (slopes, slope.tolist())):
                axes.plot(points, numbers, color=style.placeholder, label=name, linewidth=1.6)
        values.set_ylabel("gate")
        slopes.set_ylabel("its gradient")
        values.set_ylim(-1.2, 3.2)
        slopes.set_ylim(-0.2, 1.2)
        for axes in (values, slopes):
            axes.set_xlabel("x")
            axes.grid()
            axes.set_axisbelow(True)
        lines, labels = values.get_legend_handles_labels()
        figure.legend(lines, labels, loc="outside upper left", ncols=5, frameon=False)

    title = "The functions of the gates of feed-forward networks, and their gradients"
    return file_svg(draw, _SIZE, title)


if __name__ == "__main__":
    IMAGE.write_text(gates_svg(), encoding="utf-8")
