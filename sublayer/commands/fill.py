"""``sublayer fill``: the likeliest fillings of a text's masks."""

from typing import Annotated

import typer

from sublayer.commands.shared.base import DeviceOption, JsonObject, JsonOption, RunArgument, emit
from sublayer.system.stages import stage
from sublayer.tables import table

EXAMPLE = 'sublayer fill runs/albert-small --text "The [MASK] sat on the mat."'

TextOption = Annotated[
    str,
    typer.Option(
        "--text",
        help="The text, with [MASK] where a word is missing, once or several times; of a T5 also "
        "<extra_id_0>, <extra_id_1> ...",
    ),
]
FillingsOption = Annotated[
    int,
    typer.Option("--n", min=1, max=1000, metavar="N", help="Fillings of each mask."),
]


def command(
    run: RunArgument,
    text: TextOption,
    n: FillingsOption = 5,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fill the masks of a text: the likeliest fillings of each, with their probabilities.

    An encoder fills each mask with one token, given that all others are masked. A T5 fills each
    with any number of tokens; the likeliest that a beam of N finds are listed.
    """
    with stage("starting PyTorch"):
        from sublayer.decode.gaps.masks import fill_masks
        from sublayer.loading import load
        from sublayer.system.machine import choose_device

    model = load(run, device=choose_device(device))
    with stage("filling"):
        masks = fill_masks(model, text, n)
    listed = [[each.to_json() for each in mask] for mask in masks]
    emit({"text": text, "masks": listed}, as_json, _render)


def _render(result: JsonObject) -> str:
    shown = []
    for number, mask in enumerate(result["masks"], start=1):
        rows = [(each["text"], f"{each['probability']:.4f}", each["completed"]) for each in mask]
        name = "filling" if len(result["masks"]) == 1 else f"mask {number}"
        shown.append(
            table([name, "probability", "text"], rows, right=[1])
            if rows
            else f"{name}: nothing of what the model wrote fills it, as a T5 trained on gaps does"
        )
    return "\n\n".join(shown)
