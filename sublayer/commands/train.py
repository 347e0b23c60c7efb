"""``sublayer train``: train a recipe, or go on with a run."""

from pathlib import Path
from typing import Annotated

import typer

from sublayer.commands.shared.base import (
    DeviceOption,
    JsonObject,
    JsonOption,
    RecipeArgument,
    SettingsArgument,
    emit,
    say,
)
from sublayer.config.layering.layers import load_recipe
from sublayer.system.announce import announced, say_nothing
from sublayer.system.launch import is_first_launched

EXAMPLE = "sublayer train gpt data.path=book.txt model.ffn=swiglu train.minutes=2 --out runs/book"


def command(
    recipe: RecipeArgument,
    settings: SettingsArgument = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="The run's folder. Default: runs/RECIPE, then runs/RECIPE-2, ..."
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the run in --out (default: "
            "RECIPE where it is a run, else the last), from its newest whole checkpoint.",
        ),
    ] = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model as a recipe says, and keep it with its record in a folder of its own.

    Ctrl-C saves and stops; the same command with --resume goes on, and ends with the same weights
    as if it had never been stopped. Several processes: torchrun --nproc-per-node 2 -m sublayer
    train RECIPE ... --out FOLDER.
    """
    loaded = load_recipe(recipe, settings or [])

    # Each process of several starts it; the first one talks.
    with announced("starting PyTorch", say if is_first_launched() else say_nothing):
        from sublayer.runs.folder import default_folder
        from sublayer.runs.run import train_run
        from sublayer.training.parallel import leave_world

    try:
        folder = out or default_folder(loaded, resume=resume)
        record = train_run(loaded, folder, resume=resume, device=device)
    finally:
        leave_world()
    if is_first_launched():
        from sublayer.objective.families import family_of

        family = family_of(loaded.recipe.objective)

        def render(record: JsonObject) -> str:
            return _render(record, family.describe(record["valid"]))

        emit(record, as_json, render)


def _render(record: JsonObject, scores: str) -> str:
    step = record["valid"]["step"]
    trained = f"trained {record['step']:,} steps, {record['tokens']:,} tokens"
    speed = f"{record['tokens_per_s']:,.0f} tokens/s"
    lines = [f"{trained} in {record['seconds']:.0f} s ({speed})"]
    minutes = record.get("minutes") or {}
    if minutes.get("note"):
        lines.append(minutes["note"])
    return "\n".join(
        [
            *lines,
            f"valid: {scores} (best of the evaluations during training, at step {step:,})",
            f"model and record: {record['run']}",
            f"next: sublayer evaluate {record['run']} --split test",
        ]
    )
