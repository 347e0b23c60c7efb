"""Plans as people read them: a table of arms, their total, shortages, several processes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sublayer.counts import count
from sublayer.numbers import format_duration, format_quantity
from sublayer.reporting.terminal import read_budgets, render_budgets
from sublayer.study.budget.expected import PROGRAM_BYTES
from sublayer.system.terminal import noted, paragraph, terminal_width
from sublayer.tables import table

JsonObject = Mapping[str, Any]

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
_OF_ONE_PROCESS = ("memory", "s/step", "time", "disk")


def render_plan(result: JsonObject) -> str:
    """Format the arms in a table, their total, and shortages of memory or disk."""
    is_divided = "processes" in result
    headings, cells = plan_cells(result["arms"], of_one_process=not is_divided)
    shown = table(headings, cells, right=range(1, len(headings)), width=terminal_width())
    if is_divided:
        processes = render_processes(result["processes"])
        return "\n".join([shown, "", processes, *map(noted, result["notes"])])
    memory, *lines = plan_lines(result)
    stages = [_stages(result["stages"]), ""] if "stages" in result else []
    budgets = render_budgets(read_budgets(result["arms"]), result["arms"][0]["name"])
    lines = [*map(paragraph, lines), *map(noted, result["notes"])]
    beyond = [*budgets, ""] if budgets else []
    return "\n".join([shown, paragraph(memory), "", *beyond, *stages, *lines])


def _stages(stages: Sequence[JsonObject]) -> str:
    """Format the stages of a chain in a table: those that arms share once."""
    rows = []
    for stage in stages:
        rows.append(
            [
                stage["stage"],
                stage["after"],
                ", ".join(stage["arms"]),
                f"{stage['runs']:,}",
                _if_known(stage["steps"], "{:,}".format),
                _if_known(stage["seconds_per_step"], "{:.3g}".format),
                _if_known(stage["hours"], _format_hours),
                format_quantity(stage["memory_bytes"], "B"),
                format_quantity(stage["disk_bytes"], "B"),
            ]
        )
    headings = ["stage", "after", "arms", "runs", "steps", "s/step", "time", "memory", "disk"]
    return table(headings, rows, right=range(3, len(headings)), width=terminal_width())


def plan_lines(result: JsonObject) -> list[str]:
    """Explain the column of memory, give the runs' total, and name shortages of memory or disk."""
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


def plan_cells(
    arms: Sequence[JsonObject], *, of_one_process: bool = True
) -> tuple[list[str], list[list[str]]]:
    """Return the headings and a row for each arm, without columns that are empty for all.

    ``of_one_process`` keeps the columns of the costs of a run that one process trains.
    """
    rows = [_row(arm) for arm in arms]
    kept = [
        number
        for number, heading in enumerate(_HEADINGS)
        if (number < _N_FIXED or any(row[number] for row in rows))
        and (of_one_process or heading not in _OF_ONE_PROCESS)
    ]
    return [_HEADINGS[number] for number in kept], [[row[n] for n in kept] for row in rows]


def _row(arm: JsonObject) -> list[str]:
    parameters = arm["parameters"]
    is_shared = parameters["executed"] != parameters["total"]
    overrides = arm["match"]["overrides"] if arm["match"] else []
    is_extrapolated = arm["seconds_per_step"] is not None and arm["is_extrapolated"]
    extrapolated = " (extrapolated)" if is_extrapolated else ""
    return [
        arm["name"],
        f"{parameters['total']:,}",
        f"{parameters['executed']:,}" if is_shared else "",
        " ".join(override.partition(".")[2] for override in overrides),
        format_quantity(arm["flops_per_token"]),
        format_quantity(arm["memory_bytes"], "B"),
        f"{_if_known(arm['seconds_per_step'], '{:.3g}'.format)}{extrapolated}",
        _if_known(arm["steps"], "{:,}".format),
        _if_known(arm["tokens"], format_quantity),
        _if_known(arm["hours"], _format_hours),
        format_quantity(arm["disk_bytes"], "B"),
    ]


def _if_known(value: float | None, form: Callable[[float], str]) -> str:
    return "" if value is None else form(value)


def _format_hours(hours: float) -> str:
    return format_duration(3600 * hours)


def _lacking(arm: JsonObject, available: JsonObject) -> Iterator[str]:
    """Generate a line for the memory and for the disk that an arm does not fit into."""
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


_MEMORY_OF_EACH = (
    "memory of a process at the most; gradients, gathered weights and activations are not all "
    "there at once. Peak: of building, steps and evaluations, with copies to be saved, the program "
    "itself not counted"
)
_PARTS = ("weights", "gradients", "optimizer", "gathered", "activations", "saving")


def render_processes(processes: JsonObject) -> str:
    """Format the ``processes`` of a plan as ``--json`` has them."""
    pairs = [(arm, shard) for arm in processes["arms"] for shard in arm["shards"]]
    shards = [shard for _, shard in pairs]
    names = {"arm": [arm["name"] for arm, _ in pairs], "shard": [row["shard"] for row in shards]}
    if len(processes["arms"]) == 1:
        del names["arm"]
    # What none has, such as gathered weights of one process, has no column.
    parts = [part for part in _PARTS if any(shard["memory"][part] for shard in shards)]
    memory = {
        {"total": "peak"}.get(part, part): [
            format_quantity(shard["memory"][part], "B") for shard in shards
        ]
        for part in (*parts, "total")
    }
    memory["fits"] = [{True: "yes", False: "no", None: ""}[shard["fits"]] for shard in shards]
    forms: dict[str, tuple[str, Callable[[float], str]]] = {
        "a step": ("seconds_per_step", _format_step),
        "tokens/s": ("tokens_per_s", format_quantity),
        "of peak": ("share_of_peak", lambda value: f"{100 * value:.3g}%"),
        "time": ("hours", _format_hours),
    }
    sent = [format_quantity(shard["sent_bytes"]["total"], "B") for shard in shards]
    times = {"sent a step": sent} | {
        heading: [_range(shard[key], form) for shard in shards]
        for heading, (key, form) in forms.items()
        if any(shard[key] for shard in shards)
    }
    places = [paragraph(_place(processes, arm)) for arm in processes["arms"]]
    tables = ["", _columns(names, memory), paragraph(_MEMORY_OF_EACH), "", _columns(names, times)]
    return "\n".join([*places, *tables, *map(noted, processes["notes"])])


def _columns(names: Mapping[str, Sequence[str]], numbers: Mapping[str, Sequence[str]]) -> str:
    headings = [*names, *numbers]
    rows = list(zip(*names.values(), *numbers.values(), strict=True))
    right = range(len(names), len(headings))
    return table(headings, rows, right=right, width=terminal_width())


def _place(processes: JsonObject, arm: JsonObject) -> str:
    datasheet = processes["datasheet"]
    where = processes["device"] if datasheet is None else datasheet["title"]
    memory = format_quantity(processes["memory_bytes"], "B")
    of_memory = "free for all" if processes["device"] == "cpu" else "each"
    return (
        f"{arm['name']} on {count(processes['number'], 'process')}, {where}, {memory} {of_memory}, "
        f"{arm['precision']}: each has {count(arm['sequences'], 'window')} of a step, in "
        f"{count(arm['micro_batches'], 'micro-batch')} of {arm['micro_batch_sequences']:,}"
    )


def _format_step(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _range(pair: Sequence[float] | None, form: Callable[[float], str]) -> str:
    """Format two figures, or one where they read alike."""
    if pair is None:
        return ""
    first, second = map(form, pair)
    return first if first == second else f"{first} to {second}"
