"""``sublayer train``: train a recipe, or go on with a run."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from sublayer.announce import announced, say_nothing
from sublayer.commands.base import JsonOption, RecipeArgument, SettingsArgument, describe_scores, emit, say
from sublayer.config.layers import load_recipe

EXAMPLE = "sublayer train gpt data.path=book.txt model.ffn=swiglu train.minutes=2 --out runs/book"


def command(
    recipe: RecipeArgument,
    settings: SettingsArgument = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The run's folder. Default: runs/RECIPE, then runs/RECIPE-2, ...")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with the run in --out (default: the last), from its newest whole checkpoint."
        ),
    ] = False,
    device: Annotated[
        str | None, typer.Option("--device", help="cpu, cuda, cuda:1 ... Default: the GPU where there is one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model as a recipe says, and keep it with its record in a folder of its own.

    Ctrl-C saves and stops; the same command with --resume goes on, and ends with the same weights as if it had never
    been stopped. Several processes: torchrun --nproc-per-node 2 -m sublayer train RECIPE ... --out FOLDER.
    """
    loaded = load_recipe(recipe, settings or [])

    # Each process of several starts it; the first one talks.
    with announced("starting PyTorch", say if os.environ.get("RANK", "0") == "0" else say_nothing):
        from sublayer.run import train_run
        from sublayer.run_folder import default_folder
        from sublayer.train.distributed import is_main_process, leave_world

    try:
        folder = out or default_folder(loaded.name, resume=resume)
        record = train_run(loaded, folder, resume=resume, device=device)
    finally:
        leave_world()
    if is_main_process():
        emit(record, as_json, _render)


def _render(record: Mapping[str, Any]) -> str:
    valid = record["valid"]
    lines = [
        f"trained {record['step']:,} steps, {record['tokens']:,} tokens in {record['seconds']:.0f} s "
        f"({record['tokens_per_s']:,.0f} tokens/s)",
        f"valid: {describe_scores(valid)} (best of the evaluations during training, at step {valid['step']:,})",
        f"model and record: {record['run']}",
        f"next: sublayer evaluate {record['run']} --split test",
    ]
    note = (record.get("minutes") or {}).get("note")
    return "\n".join([lines[0], *([note] if note else []), *lines[1:]])
