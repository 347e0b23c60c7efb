"""Results and plans for a terminal: a summary, the report without figures, plans, shortages."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sublayer.files.storage import as_typed, resolved
from sublayer.numbers import count, format_duration, format_quantity
from sublayer.reporting import tables
from sublayer.reporting.tables import card_sheet
from sublayer.reporting.words import (
    basis_lines,
    conditions,
    fact_lines,
    hypothesis_words,
    in_display_units,
    statements,
    text_line,
)
from sublayer.study.budget import PROGRAM_BYTES, read_budget
from sublayer.study.comparisons import compared_budgets, differing_fields
from sublayer.study.results import Results
from sublayer.system.terminal import hanging, noted, paragraph, terminal_width
from sublayer.tables import Sheet

_WIDEST_VERDICT = len("cannot tell")
_MOST_SHOWN = 8
"""Comparisons shown in a summary."""
_BUILT_IN = ("python",)
"""The text of a recipe that names none."""


def summarize(results: Results, report: Path) -> str:
    """Format verdicts a line each, a table of the arms, the conditions, and the report's path."""
    metric = results.metric
    better = "lower" if metric.is_lower_better else "higher"
    title = f"{results.title or results.name}, in {metric.label} ({better} is better):"
    verdicts = statements(results)
    lines = [paragraph(title), ""]
    lines += [hanging(statement.brief, "  ", "    ") for statement in verdicts[:_MOST_SHOWN]]
    if hypothesis := hypothesis_words(results):
        lines.append(f"  hypothesis, stated before the runs: {hypothesis[1]}")
    arms = tables.arms_sheet(in_display_units(results), tables.BRIEF)
    lines += ["", replace(arms, rows=arms.rows[: _MOST_SHOWN + 1]).fitted(terminal_width())]
    if len(verdicts) > _MOST_SHOWN:
        lines.append(f"and {len(verdicts) - _MOST_SHOWN} more: see --details or the report")
    lines += ["", paragraph(f"{conditions(results)}. {text_line(results)}")]
    if results.failures:
        lines.append(f"{count(len(results.failures), 'run')} failed.")
    caveats = f"{count(len(results.notes), 'caveat')}, " if results.notes else ""
    lines.append(f"{caveats}p values, costs and settings: see --details or the report")
    lines.append(f"report: {resolved(report)}")
    text = results.reproduction.text
    if text is not None and text.names == _BUILT_IN:
        lines.append(f"next, on your own text: {results.reproduction.command} data.path=FILE")
    return "\n".join(lines)


def render(results: Results, report: Path) -> str:
    """Format the report without its figures: verdicts, intervals, caveats, costs."""
    results = in_display_units(results)
    lines = [paragraph(f"{conditions(results)}:"), ""]
    for statement in statements(results):
        lines.append(_beside(statement.verdict, str(statement)))
        lines += [_beside("", sentence) for sentence in statement.further]
    for failure in results.failures:
        lines.append(_beside("failed", f"{failure.arm}, seed {failure.seed}: {failure.message}"))
    if hypothesis := hypothesis_words(results):
        lines += ["", paragraph(f"Hypothesis, stated before the runs: {results.hypothesis}")]
        lines.append(f"  {hypothesis[1]}")
    card = results.scorecard
    basis = [hanging(line, "", "  ") for line in basis_lines(results)]
    parts = [
        [hanging(line, "", "  ") for line in fact_lines(results)],
        [noted(note) for note in results.notes],
        [] if card is None else shown(card_sheet(card)),
        shown(tables.differences_sheet(results)),
        [*shown(tables.secondary_sheet(results)), *basis],
        shown(tables.arms_sheet(results, tables.DETAILED)),
        shown(tables.budget_sheet(compared_budgets(results), results.baseline)),
        shown(tables.further_sheet(results)) if results.further else [],
        shown(tables.quality_sheet(results)) if card is None else [],
        list(_differing(results)),
        [f"report: {resolved(report)}"],
    ]
    for part in filter(None, parts):
        lines += ["", *part]
    return "\n".join(lines)


def _beside(verdict: str, text: str) -> str:
    """Wrap a text in a column next to a verdict, or below a long one."""
    if len(verdict) > _WIDEST_VERDICT:
        return f"  {verdict}\n{_beside('', text)}"
    return hanging(text, f"  {verdict:<{_WIDEST_VERDICT}}  ", " " * (_WIDEST_VERDICT + 4))


def shown(sheet: Sheet) -> list[str]:
    """Format a table with rows, and the lines below it, to the width of the terminal."""
    below = [hanging(line, "", "  ") for line in sheet.legend]
    return [sheet.fitted(terminal_width()), *below] if sheet.rows else below


def planned_sheet(arms: Sequence[Mapping[str, Any]]) -> Sheet:
    """Return the planned excess of arms over others, from JSON."""
    budgets = [read_budget(arm["name"], arm["excess"]) for arm in arms]
    return tables.budget_sheet(budgets, arms[0]["name"])


def _differing(results: Results) -> Iterator[str]:
    """Yield each arm's fields that differ from the baseline, an arm per line."""
    fields = differing_fields(results.arms)
    for arm in results.arms:
        texts = []
        for field, settings in fields.items():
            chosen, usual = settings.get(arm.name), settings.get(results.baseline)
            if chosen is None or usual is None or chosen.value == usual.value:
                continue
            origin = "" if chosen.origin == "own" else f" ({chosen.origin})"
            setting = (
                f"{field} = {as_typed(chosen.value)}{origin}" if chosen.value is not None else ""
            )
            texts.append(setting or f"no {field}")
        if texts:
            text = f"{arm.name} differs from {results.baseline} by {', '.join(texts)}"
            yield hanging(text, "", "  ")


JsonObject = Mapping[str, Any]
_Form = Callable[[Any], str]

_MEMORY = (
    "memory: of a training step (model, optimizer, activations); on a CPU train and compare "
    "show more, including libraries loaded during a run"
)
_TOO_MANY = "the parallel runs do not fit into free memory together: give fewer --jobs"
_TOO_LARGE = "the runs do not fit on the disk together: free some space, or give another --out"
_OF_ONE_PROCESS = ("memory", "s/step", "time", "disk")
_MEMORY_OF_EACH = (
    "memory of a process, at most; gradients, gathered weights and activations do not all exist "
    "at once. Peak: over building, steps and evaluations, with copies for checkpoints, without "
    "the program itself"
)
_PARTS = ("weights", "gradients", "optimizer", "gathered", "activations", "saving")


def render_plan(result: JsonObject) -> str:
    """Format the arms in a table, their total, and shortages of memory or disk."""
    is_divided = "processes" in result
    arms = plan_sheet(result["arms"], of_one_process=not is_divided).fitted(terminal_width())
    notes = list(map(noted, result["notes"]))
    if is_divided:
        return "\n".join([arms, "", render_processes(result["processes"]), *notes])
    memory, *lines = map(paragraph, plan_lines(result))
    parts = [arms, memory, ""]
    if budgets := shown(planned_sheet(result["arms"])):
        parts += [*budgets, ""]
    if stages := result.get("stages"):
        numbers: dict[str, tuple[str, _Form]] = {
            "runs": ("runs", _WHOLE),
            "steps": ("steps", _WHOLE),
            "s/step": ("seconds_per_step", _SHORT),
            "time": ("hours", _hours),
            "memory": ("memory_bytes", _bytes),
            "disk": ("disk_bytes", _bytes),
        }
        rows = []
        for stage in stages:  # shared ones once
            cells = _cells(stage, dict(numbers.values()))
            rows.append([stage["stage"], stage["after"], ", ".join(stage["arms"]), *cells])
        sheet = Sheet(["stage", "after", "arms", *numbers], rows, texts=range(3))
        parts += [sheet.fitted(terminal_width()), ""]
    return "\n".join([*parts, *lines, *notes])


def _hours(hours: float) -> str:
    return format_duration(3600 * hours)


def _bytes(number: float) -> str:
    return format_quantity(number, "B")


_WHOLE: _Form = "{:,}".format
_SHORT: _Form = "{:.3g}".format


def _cells(row: JsonObject, forms: Mapping[str, _Form]) -> list[str]:
    """Format the numbers of a row by key, unknown ones empty."""
    return ["" if row[key] is None else form(row[key]) for key, form in forms.items()]


def plan_lines(result: JsonObject) -> list[str]:
    """Explain the column of memory, give the runs' total, and name shortages of memory or disk."""
    total, available, arms = result["total"], result["available"], result["arms"]
    hours = "time unknown" if total["hours"] is None else _hours(total["hours"])
    runs = count(total["runs"], "run")
    if total["jobs"] > 1:
        runs += f", {total['jobs']} at a time in {_bytes(total['memory_bytes'])} of memory"
    free_memory, free_disk = (_bytes(available[f"{name}_bytes"]) for name in ("memory", "disk"))
    lines = [
        _MEMORY,
        f"{runs}: {hours}, up to {_bytes(total['disk_bytes'])} of disk; "
        f"free here: {free_memory} of memory ({available['device']}), {free_disk} of disk",
    ]
    program_bytes = PROGRAM_BYTES if available["device"] == "cpu" else 0
    for arm in arms:
        if arm["fits"]["memory"] is False:
            lines.append(
                f"{arm['name']} does not fit into memory: a training step takes "
                f"{_bytes(arm['memory_bytes'] + program_bytes)}, and {free_memory} is free; make "
                "train.micro_batch_sequences, data.context or the model smaller"
            )
        if arm["fits"]["disk"] is False:
            lines.append(
                f"{arm['name']} does not fit on the disk: its checkpoints take "
                f"{_bytes(arm['disk_bytes'])}, and {free_disk} is free; make "
                "train.keep_checkpoints or the model smaller"
            )
    if total["jobs"] > 1 and total["fits_memory"] is False:
        lines.append(_TOO_MANY)
    if total["fits_disk"] is False and all(arm["fits"]["disk"] for arm in arms):
        lines.append(_TOO_LARGE)
    return lines


def plan_sheet(arms: Sequence[JsonObject], *, of_one_process: bool = True) -> Sheet:
    """Return a row for each arm, without columns that are empty for all.

    ``of_one_process`` keeps the cost columns of a run trained by one process.
    """
    rows = []
    for arm in arms:
        total, executed = arm["parameters"]["total"], arm["parameters"]["executed"]
        overrides = arm["match"]["overrides"] if arm["match"] else []
        per_step = "" if arm["seconds_per_step"] is None else _SHORT(arm["seconds_per_step"])
        forms = {"steps": _WHOLE, "tokens": format_quantity, "hours": _hours}
        steps, tokens, time = _cells(arm, forms)
        rows.append(
            {
                "arm": arm["name"],
                "parameters": f"{total:,}",
                "executed": f"{executed:,}" if executed != total else "",
                "matched": " ".join(override.partition(".")[2] for override in overrides),
                "FLOPs/token": format_quantity(arm["flops_per_token"]),
                "memory": _bytes(arm["memory_bytes"]),
                "s/step": f"{per_step} (extrapolated)"
                if per_step and arm["is_extrapolated"]
                else per_step,
                "steps": steps,
                "tokens": tokens,
                "time": time,
                "disk": _bytes(arm["disk_bytes"]),
            }
        )
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    if not of_one_process:
        columns = {name: it for name, it in columns.items() if name not in _OF_ONE_PROCESS}
    return _sheet(columns, kept=("arm", "parameters"))


def _sheet(
    columns: Mapping[str, Sequence[str]], kept: Iterable[str] = (), n_texts: int = 1
) -> Sheet:
    """Return columns as a table, without columns that are empty for all."""
    filled = {name: cells for name, cells in columns.items() if any(cells) or name in kept}
    rows = list(zip(*filled.values(), strict=True))
    return Sheet(list(filled), rows, texts=range(n_texts))


def render_processes(processes: JsonObject) -> str:
    """Format the ``processes`` of a plan from its JSON."""
    pairs = [(arm, shard) for arm in processes["arms"] for shard in arm["shards"]]
    shards = [shard for _, shard in pairs]
    names = {"arm": [arm["name"] for arm, _ in pairs], "shard": [row["shard"] for row in shards]}
    if len(processes["arms"]) == 1:
        del names["arm"]
    # Quantities absent from all, such as gathered weights of one process, have no column.
    parts = [part for part in _PARTS if any(shard["memory"][part] for shard in shards)]
    memory = {
        {"total": "peak"}.get(part, part): [_bytes(shard["memory"][part]) for shard in shards]
        for part in (*parts, "total")
    }
    memory["fits"] = [{True: "yes", False: "no", None: ""}[shard["fits"]] for shard in shards]
    forms: dict[str, tuple[str, _Form]] = {
        "a step": ("seconds_per_step", _step),
        "tokens/s": ("tokens_per_s", format_quantity),
        "of peak": ("share_of_peak", lambda value: f"{100 * value:.3g}%"),
        "time": ("hours", _hours),
    }
    times = {"sent a step": [_bytes(shard["sent_bytes"]["total"]) for shard in shards]}
    for heading, (key, form) in forms.items():
        times[heading] = [
            " to ".join(dict.fromkeys(map(form, shard[key] or ()))) for shard in shards
        ]
    n, width = len(names), terminal_width()
    of_memory = _sheet({**names, **memory}, kept=("fits",), n_texts=n).fitted(width)
    of_times = _sheet({**names, **times}, n_texts=n).fitted(width)
    below = [paragraph(_MEMORY_OF_EACH), "", of_times, *map(noted, processes["notes"])]
    return "\n".join([*_places(processes), "", of_memory, *below])


def _places(processes: JsonObject) -> Iterator[str]:
    """Yield the place of each arm's training, and the division of its steps."""
    datasheet = processes["datasheet"]
    where = processes["device"] if datasheet is None else datasheet["title"]
    of_memory = "free for all" if processes["device"] == "cpu" else "each"
    for arm in processes["arms"]:
        yield paragraph(
            f"{arm['name']} on {count(processes['number'], 'process')}, {where}, "
            f"{_bytes(processes['memory_bytes'])} {of_memory}, {arm['precision']}: each has "
            f"{count(arm['sequences'], 'window')} of a step, in "
            f"{count(arm['micro_batches'], 'micro-batch')} of {arm['micro_batch_sequences']:,}"
        )


def _step(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
