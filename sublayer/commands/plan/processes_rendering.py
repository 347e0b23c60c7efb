"""How a plan of several processes is printed: their memory, then what they send, time and price."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sublayer.commands.shared.paragraphs import noted, paragraph
from sublayer.counts import count
from sublayer.system.terminal import terminal_width
from sublayer.tables import table

_MEMORY = (
    "memory of a process at the most; gradients, gathered weights and activations are not all "
    "there at once. Peak: of building, steps and evaluations, with copies to be saved, the program "
    "itself not counted"
)
_PARTS = ("weights", "gradients", "optimizer", "gathered", "activations", "saving")


def render_processes(found: Mapping[str, Any]) -> str:
    """Format the ``processes`` of a plan as ``--json`` has them."""
    arms = found["arms"]
    lines = [paragraph(_where(found, arm)) for arm in arms]
    lines += ["", _table(*_memory(found)), paragraph(_MEMORY), "", _table(*_time(found))]
    return "\n".join([*lines, *map(noted, found["notes"])])


def _where(found: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    from sublayer.study.report.number_format import format_quantity

    datasheet = found["datasheet"]
    where = found["device"] if datasheet is None else datasheet["title"]
    processes = "1 process" if found["number"] == 1 else f"{found['number']:,} processes"
    memory = format_quantity(found["memory_bytes"], "B")
    of_memory = "free for all" if found["device"] == "cpu" else "each"
    return (
        f"{arm['name']} on {processes}, {where}, {memory} {of_memory}, {arm['precision']}: each "
        f"has {count(arm['sequences'], 'window')} of a step, in "
        f"{count(arm['micro_batches'], 'micro-batch')} of {arm['micro_batch_sequences']:,}"
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    n_names = headings.index("shard") + 1
    right = range(n_names, len(headings))
    return table(headings, rows, right=right, width=terminal_width())


def _rows(found: Mapping[str, Any]) -> Iterator[tuple[list[str], Mapping[str, Any]]]:
    """Generate each row's names, with the arm's where there are several, and its figures."""
    for arm in found["arms"]:
        for shard in arm["shards"]:
            names = [arm["name"]] if len(found["arms"]) > 1 else []
            yield [*names, shard["shard"]], shard


def _headings(found: Mapping[str, Any]) -> list[str]:
    return ["arm", "shard"] if len(found["arms"]) > 1 else ["shard"]


def _memory(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    from sublayer.study.report.number_format import format_quantity

    # What none has, such as gathered weights of one process, has no column.
    shown = [part for part in _PARTS if any(each["memory"][part] for _, each in _rows(found))]
    rows = []
    for names, shard in _rows(found):
        memory = shard["memory"]
        parts = [format_quantity(memory[part], "B") for part in shown]
        fits = {True: "yes", False: "no", None: ""}[shard["fits"]]
        rows.append([*names, *parts, format_quantity(memory["total"], "B"), fits])
    return [*_headings(found), *shown, "peak", "fits"], rows


def _time(found: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    from sublayer.study.report.number_format import format_duration, format_quantity

    columns: list[tuple[str, str, Callable[[float], str]]] = [
        ("a step", "seconds_per_step", _format_step),
        ("tokens/s", "tokens_per_s", format_quantity),
        ("of peak", "share_of_peak", lambda value: f"{100 * value:.3g} %"),
        ("time", "hours", lambda value: format_duration(3600 * value)),
        ("cost", "cost", lambda value: f"${value:,.2f}"),
    ]
    shards = [shard for _, shard in _rows(found)]
    columns = [each for each in columns if any(shard[each[1]] for shard in shards)]
    rows = []
    for names, shard in _rows(found):
        sent = format_quantity(shard["sent_bytes"]["total"], "B")
        cells = [_range(shard[key], form) for _, key, form in columns]
        rows.append([*names, sent, *cells])
    return [*_headings(found), "sent a step", *(heading for heading, _, _ in columns)], rows


def _format_step(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _range(pair: Sequence[float] | None, form: Callable[[float], str]) -> str:
    """Format two figures, or one where they read alike."""
    if pair is None:
        return ""
    first, second = map(form, pair)
    return first if first == second else f"{first} to {second}"
