"""The tasks that ``data.tasks`` names, one or several, weighted or not."""

import math

from sublayer.config.limits import LARGEST_FACTOR
from sublayer.config.text.corpora import Sources, source_names
from sublayer.config.text.own_table import OwnColumns
from sublayer.errors import ConfigError
from sublayer.nearest import LONGEST_WORD, nearest_hint
from sublayer.tasks.own_table.table import table_of
from sublayer.tasks.own_table.task import METRICS, NAME
from sublayer.tasks.registry import TASKS
from sublayer.tasks.task import Kind


def check_tasks(tasks: Sources | None) -> None:
    """Raise ConfigError for an empty ``data.tasks``, an unknown name or a wrong weight."""
    if tasks is not None and not tasks:
        raise ConfigError("data.tasks is empty: name a task, such as sst2")
    names = source_names(tasks)
    if NAME in names and len(names) > 1:
        raise ConfigError(f"data.tasks = {NAME}, a table of your own, stands in no mixture: alone")
    for name in names:
        if name not in TASKS and name != NAME:
            raise ConfigError(
                f"data.tasks = {name[:LONGEST_WORD]!r} is not one of {', '.join(TASKS)}, {NAME}"
                f"{nearest_hint(name, (*TASKS, NAME))}"
            )
    weights = tasks if isinstance(tasks, dict) else {}
    for name, weight in weights.items():
        if not (math.isfinite(weight) and 0 < weight <= LARGEST_FACTOR):
            raise ConfigError(
                f"data.tasks: the weight {weight:g} of {name} must be more than 0 and at most "
                f"{LARGEST_FACTOR:,.0f}"
            )


def check_size_limit(limit: int | None, tasks: Sources | None) -> None:
    """Raise ConfigError where ``data.size_limit`` says nothing: without a mixture by size."""
    if limit is None or tasks is None:
        return
    if isinstance(tasks, dict):
        raise ConfigError(
            f"data.size_limit = {limit} limits what tasks are drawn by, their sizes, which the "
            "weights of data.tasks take the place of: leave out one of the two"
        )
    names = source_names(tasks)
    if len(names) == 1:
        raise ConfigError(
            f"data.size_limit = {limit} is for a mixture, and data.tasks = {names[0]} is one task: "
            "leave it out"
        )


def metrics_of(name: str, columns: OwnColumns | None) -> tuple[str, ...]:
    """Return the metrics of a task; of a table's spans none, whose metrics its rows decide."""
    if name != NAME:
        return TASKS[name].metrics
    kind = kind_of(name, columns)
    return () if kind is None or kind == "span" else METRICS[kind]


def kind_of(name: str, columns: OwnColumns | None) -> Kind | None:
    """Return what a task asks for; None of a table without columns."""
    if name != NAME:
        return TASKS[name].kind
    return None if columns is None else table_of("", columns).kind
