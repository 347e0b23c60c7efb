"""The tasks that ``data.tasks`` names, one or several, weighted or not."""

import math

from sublayer.config.limits import LARGEST_FACTOR
from sublayer.config.text.corpora import Sources, source_names
from sublayer.errors import ConfigError
from sublayer.nearest import LONGEST_WORD, nearest_hint
from sublayer.tasks.registry import TASKS


def check_tasks(tasks: Sources | None) -> None:
    """Raise ConfigError for an empty ``data.tasks``, an unknown name or a wrong weight."""
    if tasks is not None and not tasks:
        raise ConfigError("data.tasks is empty: name a task, such as sst2")
    for name in source_names(tasks):
        if name not in TASKS:
            raise ConfigError(
                f"data.tasks = {name[:LONGEST_WORD]!r} is not one of {', '.join(TASKS)}"
                f"{nearest_hint(name, tuple(TASKS))}"
            )
    weights = tasks if isinstance(tasks, dict) else {}
    for name, weight in weights.items():
        if not (math.isfinite(weight) and 0 < weight <= LARGEST_FACTOR):
            raise ConfigError(
                f"data.tasks: the weight {weight:g} of {name} must be more than 0 and at most "
                f"{LARGEST_FACTOR:,.0f}"
            )
