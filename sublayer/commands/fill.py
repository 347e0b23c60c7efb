"""``sublayer fill``: the likeliest fillings of a text's masks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sublayer.commands.shared.base import DeviceOption, JsonObject, JsonOption, RunArgument, emit
from sublayer.system.stages import stage
from sublayer.tables import table

if TYPE_CHECKING:
    import torch

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
        from sublayer.system.machine import choose_device

    emit(fill_text(run, text, n, choose_device(device)), as_json, render)


def fill_text(run: Path, text: str, n: int, device: "torch.device") -> dict[str, Any]:
    """Return the fillings of each mask of a text. Raises ConfigError as ``fill_masks`` does."""
    from sublayer.decode.gaps.masks import fill_masks
    from sublayer.loading import load

    model = load(run, device=device)
    with stage("filling"):
        masks = fill_masks(model, text, n)
    return {"text": text, "masks": [[each.to_json() for each in mask] for mask in masks]}


def render(result: JsonObject) -> str:
    """Format the fillings for the terminal: a table of each mask, one above another."""
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
