"""``sublayer plan``: what a run or a comparison will cost, before anything is spent."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sublayer.commands.base import JsonOption, SettingsArgument, emit, say, table
from sublayer.config.limits import MOST_SEEDS

EXAMPLE = "sublayer plan gpt train.minutes=5 --vary model.ffn=gelu,swiglu --measure"


def command(
    source: Annotated[str, typer.Argument(metavar="RECIPE|STUDY", help="A recipe, a study or a run, by name or path.")],
    settings: SettingsArgument = None,
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="FIELD=A,B", help="Plan these values; the first is the baseline. Repeatable."),
    ] = None,
    match: Annotated[
        Literal["parameters", "flops", "time", "none"] | None,
        typer.Option("--match", help="What every arm has as much of as the baseline. Default: parameters."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds", metavar="N", min=1, max=MOST_SEEDS, help="Runs of each arm. Default: 5; 1 of a single arm."
        ),
    ] = None,
    tune: Annotated[
        list[str] | None,
        typer.Option("--tune", metavar="FIELD=A,B", help="Count trials of these values in every arm. Repeatable."),
    ] = None,
    scale: Annotated[
        Literal["paper", "cpu"] | None,
        typer.Option("--scale", help="The size of a study. Default: paper, if it has it."),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Take a few real steps (on random tokens) for at most a minute.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where the runs would go: the disk whose free space counts.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="cpu, cuda, cuda:1 ... Default: the GPU where there is one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what each arm has and takes: parameters, operations, memory; with --measure, time.

    The text is not read and nothing is trained. A vocabulary that is yet to be trained counts as data.vocab_size.
    """
    from sublayer.study.definition import load_study
    from sublayer.study.plan import default_seeds, make_plan, plan_to_json
    from sublayer.study.resources import find_resources
    from sublayer.study.tuning import make_trials

    study = load_study(source, settings or [], vary_texts=vary or [], scale=scale)
    n_trials = len(make_trials(study.arms, tune or []))
    resources = find_resources(device, _existing(out or Path()))
    clock = None
    if measure:
        from sublayer.study.measure import Stopwatch

        clock = Stopwatch(resources, say)
    plan = make_plan(study.arms, match or study.match, resources, clock)
    plan = replace(plan, notes=(*plan.notes, *study.caveats))
    emit(plan_to_json(plan, resources, seeds or default_seeds(study), n_trials), as_json, _render)


def _existing(folder: Path) -> Path:
    """Give the folder, or the nearest one above it that is there."""
    return next(each for each in (folder.absolute(), *folder.absolute().parents) if each.is_dir())


def _render(result: Mapping[str, Any]) -> str:
    from sublayer.study.wording import format_duration, format_quantity

    arms, total, available = result["arms"], result["total"], result["available"]
    headings = ["arm", "parameters", "executed", "matched", "±", "FLOPs/token", "memory", "s/step", "steps", "tokens",
                "time", "disk"]  # fmt: skip
    rows = [_row(arm) for arm in arms]
    shown = [column for column in range(len(headings)) if column < 2 or any(row[column] != "" for row in rows)]
    lines = [
        table(
            [headings[column] for column in shown],
            [[row[column] for column in shown] for row in rows],
            right=range(1, len(shown)),
        ),
        "",
    ]
    hours = "time unknown" if total["hours"] is None else format_duration(3600 * total["hours"])
    lines.append(
        f"{total['runs']} {'run' if total['runs'] == 1 else 'runs'}: {hours}, up to "
        f"{format_quantity(total['disk_bytes'], 'B')} of disk; free here: "
        f"{format_quantity(available['memory_bytes'], 'B')} of memory ({available['device']}), "
        f"{format_quantity(available['disk_bytes'], 'B')} of disk"
    )
    lines += [_verdict(arm) for arm in arms if False in arm["fits"].values()]
    if total["fits_disk"] is False and all(arm["fits"]["disk"] for arm in arms):
        lines.append("the runs do not fit on the disk together: free some, or give another --out")
    lines += [f"note: {note}" for note in result["notes"]]
    return "\n".join(lines)


def _row(arm: Mapping[str, Any]) -> list[str]:
    from sublayer.study.wording import format_duration, format_quantity, format_signed

    parameters, match, seconds = arm["parameters"], arm["match"], arm["seconds_per_step"]
    is_shared = parameters["executed"] != parameters["total"]
    return [
        arm["name"],
        f"{parameters['total']:,}",
        f"{parameters['executed']:,}" if is_shared else "",
        " ".join(match["overrides"]) if match else "",
        f"{format_signed(100 * match['residual'], 2)} %{' !' if match['is_unequal'] else ''}" if match else "",
        format_quantity(arm["flops_per_token"]),
        format_quantity(arm["memory_bytes"], "B"),
        "" if seconds is None else f"{seconds:.3g}{' (extrapolated)' if arm['is_extrapolated'] else ''}",
        "" if arm["steps"] is None else f"{arm['steps']:,}",
        "" if arm["tokens"] is None else format_quantity(arm["tokens"]),
        "" if arm["hours"] is None else format_duration(3600 * arm["hours"]),
        format_quantity(arm["disk_bytes"], "B"),
    ]


def _verdict(arm: Mapping[str, Any]) -> str:
    change = f": {' '.join(arm['change'])} would fit" if arm["change"] else ", and no smaller width or depth would"
    lacking = [name for name in ("memory", "disk") if arm["fits"][name] is False]
    return f"{arm['name']} does not fit into the {' and the '.join(lacking)} that is free{change}"
