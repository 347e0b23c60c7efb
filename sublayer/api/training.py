"""Training: a recipe to a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from sublayer.api.arguments import Device, Overrides, Recipe, as_text
from sublayer.options import Option, PathText, checked
from sublayer.system.launch import is_first_launched
from sublayer.system.stages import note, stage

if TYPE_CHECKING:
    from sublayer.api.run import Run


@checked
def train(
    source: Recipe,
    overrides: Overrides | None = None,
    *,
    out: Annotated[
        PathText | None,
        Option("The run's folder. Default: runs/RECIPE, then runs/RECIPE.2, ..."),
    ] = None,
    resume: Annotated[
        bool,
        Option(
            "Resume the run in --out (default: "
            "RECIPE where it is a run, else the last), from its newest whole checkpoint."
        ),
    ] = False,
    device: Device = None,
) -> "Run":
    """Train a recipe, and return the run.

    ``overrides`` maps fields to values, such as ``{"model.d_ff": 512}``. Resuming a run that has
    ended returns it, unless a longer length is given. Raises the errors of
    :mod:`sublayer.errors`.
    """
    from sublayer.api.run import Run
    from sublayer.config.load import load_recipe

    loaded = load_recipe(as_text(source, "a recipe"), overrides or {})
    with stage("starting PyTorch"):
        from sublayer.runs.folder import RunFolder, chosen_folder
        from sublayer.runs.run import train_run
        from sublayer.training.processes.world import leave_world

    try:
        folder = chosen_folder(None if out is None else Path(out), loaded, resume=resume)
        before = RunFolder(folder).record() if resume else None
        record = train_run(loaded, folder, resume=resume, device=device)
    finally:
        leave_world()
    if record == before and is_first_launched():
        if record.get("stopped_early"):
            note(f"{folder} ended early, as train.patience says: nothing is left to train")
        else:
            longer = f"train.steps={2 * record['step']}"
            note(
                f"{folder} has ended, and nothing is left to train: give a longer length, such as "
                f"{longer}, to continue it"
            )
    return Run(folder)
