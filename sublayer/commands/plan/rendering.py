"""How a plan is printed: a table of its arms, what they take together, what does not fit."""

from collections.abc import Callable, Iterator, Sequence

from sublayer.commands.plan.processes import render_processes
from sublayer.commands.shared.base import JsonObject
from sublayer.counts import count
from sublayer.system.terminal import noted, paragraph, terminal_width
from sublayer.tables import table

_HEADINGS = (
    "arm",
    "parameters",
    "executed",
    "matched",
    "FLOPs/token",
    "memory",
    "s/step",
    "steps",
    "tokens",
    "time",
    "disk",
)
_MEMORY = (
    "memory: of a training step (model, optimizer, activations); on a CPU train and compare show "
    "more, also what the program loads during a run"
)
_TOO_MANY = "so many runs do not fit into the memory that is free: give fewer --jobs"
_TOO_LARGE = "the runs do not fit on the disk together: free some, or give another --out"
_N_FIXED = 2
"""Columns that are there even where they are empty."""


def render_plan(result: JsonObject) -> str:
    """Format the arms in a table, what they take together, and what does not fit."""
    from sublayer.reporting.terminal import read_budgets, render_budgets

    if "processes" in result:
        return _of_processes(result)
    headings, cells = plan_cells(result["arms"])
    shown = table(headings, cells, right=range(1, len(headings)), width=terminal_width())
    memory, *lines = plan_lines(result)
    noted_lines = map(noted, result["notes"])
    stages = [_stages(result["stages"]), ""] if "stages" in result else []
    budgets = render_budgets(read_budgets(result["arms"]), result["arms"][0]["name"])
    lines = [*map(paragraph, lines), *noted_lines]
    beyond = [*budgets, ""] if budgets else []
    return "\n".join([shown, paragraph(memory), "", *beyond, *stages, *lines])


def _of_processes(result: JsonObject) -> str:
    """Format the arms without what one process takes, and below what each of several does."""
    own = {"memory", "s/step", "time", "disk"}
    columns = [
        column for column in zip(*_all_cells(result["arms"]), strict=True) if column[0] not in own
    ]
    headings, *cells = map(list, zip(*columns, strict=True))
    shown = table(headings, cells, right=range(1, len(headings)), width=terminal_width())
    notes = map(noted, result["notes"])
    return "\n".join([shown, "", render_processes(result["processes"]), *notes])


def _all_cells(arms: Sequence[JsonObject]) -> list[list[str]]:
    headings, cells = plan_cells(arms)
    return [headings, *cells]


def _stages(stages: Sequence[JsonObject]) -> str:
    """Format the stages of a chain in a table: those that arms share once."""
    from sublayer.numbers import format_quantity

    rows = []
    for each in stages:
        seconds = each["seconds_per_step"]
        rows.append(
            [
                each["stage"],
                each["after"],
                ", ".join(each["arms"]),
                f"{each['runs']:,}",
                _if_known(each["steps"], "{:,}".format),
                "" if seconds is None else f"{seconds:.3g}",
                _if_known(each["hours"], _format_hours),
                format_quantity(each["memory_bytes"], "B"),
                format_quantity(each["disk_bytes"], "B"),
            ]
        )
    headings = ["stage", "after", "arms", "runs", "steps", "s/step", "time", "memory", "disk"]
    return table(headings, rows, right=range(3, len(headings)), width=terminal_width())


def plan_lines(result: JsonObject) -> list[str]:
    """Say what the column of memory is of, what the runs take together, and what does not fit."""
    arms = result["arms"]
    total = result["total"]
    lines = [_MEMORY, _total(total, result["available"])]
    for arm in arms:
        lines += _lacking(arm, result["available"])
    each_fits = all(arm["fits"]["disk"] for arm in arms)
    if total["jobs"] > 1 and total["fits_memory"] is False:
        lines.append(_TOO_MANY)
    if total["fits_disk"] is False and each_fits:
        lines.append(_TOO_LARGE)
    return lines


def _total(total: JsonObject, available: JsonObject) -> str:
    from sublayer.numbers import format_quantity

    hours = _if_known(total["hours"], _format_hours) or "time unknown"
    runs = count(total["runs"], "run")
    if total["jobs"] > 1:
        needed_memory = format_quantity(total["memory_bytes"], "B")
        runs += f", {total['jobs']} at a time in {needed_memory} of memory"
    needed_disk = format_quantity(total["disk_bytes"], "B")
    free_memory = format_quantity(available["memory_bytes"], "B")
    free_disk = format_quantity(available["disk_bytes"], "B")
    return (
        f"{runs}: {hours}, up to {needed_disk} of disk; "
        f"free here: {free_memory} of memory ({available['device']}), {free_disk} of disk"
    )


def plan_cells(arms: Sequence[JsonObject]) -> tuple[list[str], list[list[str]]]:
    """Return the headings and a row for each arm, without columns that are empty for all."""
    rows = [_row(arm) for arm in arms]
    columns = []
    for column in range(len(_HEADINGS)):
        is_filled = any(row[column] for row in rows)
        if column < _N_FIXED or is_filled:
            columns.append(column)
    headings = [_HEADINGS[column] for column in columns]
    return headings, [[row[column] for column in columns] for row in rows]


def _row(arm: JsonObject) -> list[str]:
    from sublayer.numbers import format_quantity

    parameters = arm["parameters"]
    is_shared = parameters["executed"] != parameters["total"]
    return [
        arm["name"],
        f"{parameters['total']:,}",
        f"{parameters['executed']:,}" if is_shared else "",
        _matched_cell(arm["match"]),
        format_quantity(arm["flops_per_token"]),
        format_quantity(arm["memory_bytes"], "B"),
        _step_cell(arm),
        _if_known(arm["steps"], "{:,}".format),
        _if_known(arm["tokens"], format_quantity),
        _if_known(arm["hours"], _format_hours),
        format_quantity(arm["disk_bytes"], "B"),
    ]


def _if_known(value: float | None, form: Callable[[float], str]) -> str:
    if value is None:
        return ""
    return form(value)


def _format_hours(hours: float) -> str:
    from sublayer.numbers import format_duration

    return format_duration(3600 * hours)


def _matched_cell(match: JsonObject | None) -> str:
    """Format what matching changed in an arm."""
    overrides = match["overrides"] if match else []
    return " ".join(override.partition(".")[2] for override in overrides)


def _step_cell(arm: JsonObject) -> str:
    seconds = arm["seconds_per_step"]
    if seconds is None:
        return ""
    note = " (extrapolated)" if arm["is_extrapolated"] else ""
    return f"{seconds:.3g}{note}"


def _lacking(arm: JsonObject, available: JsonObject) -> Iterator[str]:
    """Generate a line for the memory and for the disk that an arm does not fit into."""
    from sublayer.numbers import format_quantity
    from sublayer.study.budget.capacity import PROGRAM_BYTES

    if arm["fits"]["memory"] is False:
        program_bytes = PROGRAM_BYTES if available["device"] == "cpu" else 0
        needed = format_quantity(arm["memory_bytes"] + program_bytes, "B")
        free = format_quantity(available["memory_bytes"], "B")
        yield (
            f"{arm['name']} does not fit into memory: a training step takes {needed}, {free} are "
            "free; make train.micro_batch_sequences, data.context or the model smaller"
        )
    if arm["fits"]["disk"] is False:
        needed = format_quantity(arm["disk_bytes"], "B")
        free = format_quantity(available["disk_bytes"], "B")
        yield (
            f"{arm['name']} does not fit on the disk: its checkpoints take {needed}, {free} are "
            "free; make train.keep_checkpoints or the model smaller"
        )
