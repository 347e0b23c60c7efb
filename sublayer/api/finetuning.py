"""Fine-tuning on tasks, or on a custom table."""

import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sublayer.api.arguments import Device, Overrides, Plugins, as_source
from sublayer.api.results import Result
from sublayer.config.data import OwnColumns
from sublayer.config.finetune import DEFAULT, load_finetune, preset_names
from sublayer.config.layers import Unset, as_setting, override_layer
from sublayer.config.plugins import refuse_idle
from sublayer.errors import ConfigError, nearest_hint
from sublayer.files.lines import suffix_of
from sublayer.files.storage import as_typed, expanded
from sublayer.numbers import count
from sublayer.options import Argument, Option, PathText, checked
from sublayer.runs.folder import check_new, chosen_folder
from sublayer.system.processes import is_first_launched
from sublayer.system.terminal import note, stage
from sublayer.tasks.own_table import SUFFIXES, columns_of, find_table, table_of
from sublayer.tasks.records import missing_column, named
from sublayer.tasks.registry import TASKS
from sublayer.values import plain

if TYPE_CHECKING:
    from sublayer.runs.finetuning import SeedResult


_TEXTS = {"text", "sentence", "review", "content", "body", "message"}
_LABELS = {"label", "labels", "class", "category", "sentiment", "stars", "target", "rating"}
"""Common names of columns, for an example in a message."""


@dataclass(frozen=True, repr=False)
class Finetuned(Result):
    """Runs of a fine-tuning, one per seed, with their scores and baselines."""

    path: Path
    """The folder of the run, or of the runs of several seeds."""
    seeds: "Sequence[SeedResult]"
    selected_by: str
    """The examples that selected the checkpoint by their score, as in ``data.select``, or last."""

    @property
    def scores(self) -> list[float]:
        """The score of each seed: the mean over its tasks."""
        return [seed.score for seed in self.seeds]

    @property
    def median(self) -> float:
        """The median score of the seeds."""
        return statistics.median(self.scores)

    def to_dict(self) -> dict[str, Any]:
        """Return the object of ``sublayer finetune --json``."""
        from sublayer.objective.supervised.scores import average_reports

        seeds = [
            {
                "seed": seed.seed,
                "run": str(seed.folder),
                "score": seed.score,
                "steps": seed.record["step"],
                "seconds": seed.record["seconds"],
                "tasks": [report.to_json() for report in seed.reports],
                "averages": average_reports(seed.reports),
                "task_bests": [report.to_json() for report in seed.task_bests],
                "collapsed": seed.has_collapsed,
            }
            for seed in self.seeds
        ]
        return {
            "run": str(self.path),
            "select": self.selected_by,
            "median": self.median,
            "lowest": min(self.scores),
            "best": max(self.scores),
            "collapsed": sum(seed.has_collapsed for seed in self.seeds),
            "seeds": seeds,
        }

    def __str__(self) -> str:
        from sublayer.objective.supervised.scores import (
            REMEDY,
            render_averages,
            render_baselines,
            render_reports,
        )
        from sublayer.tasks.scoring import points

        result = self.to_dict()
        seeds = result["seeds"]
        # The median seed represents all of them.
        middle = sorted(seeds, key=lambda seed: seed["score"])[(len(seeds) - 1) // 2]
        lines = [render_reports(middle["tasks"]), *render_averages(middle["averages"])]
        if len(seeds) > 1:
            shown = ", ".join(points(score) for score in self.scores)
            lines.append(
                f"{count(len(seeds), 'seed')}: median {points(result['median'])}, from "
                f"{points(result['lowest'])} to {points(result['best'])} (the best of several is "
                f"biased upwards): {shown}"
            )
        elif middle["task_bests"]:
            lines.append("each task by the checkpoint that was best for it:")
            lines.append(render_reports(middle["task_bests"]))
        lines += render_baselines(seeds[0]["tasks"])
        if result["collapsed"]:
            runs = count(len(seeds), "run")
            lines.append(f"collapsed: {result['collapsed']} of {runs}; remedy: {REMEDY}")
            lines += [
                f"  seed {seed['seed']}, {task['title']}: {task['collapse']}"
                for seed in (seeds if len(seeds) > 1 else ())
                for task in seed["tasks"]
                if task["collapse"]
            ]
        if result["select"].startswith("dev"):
            lines.append(
                f"selected on the scored development set (data.select = {result['select']}), as "
                "in the papers: biased upwards"
            )
        lines.append(f"model and record: {as_typed(result['run'])}")
        lines.append(f"next: sublayer predict {shlex.quote(as_typed(seeds[0]['run']))}")
        return "\n".join(lines)


@checked
def finetune(
    source: Annotated[
        PathText,
        Argument(
            "A run, a checkpoint or an imported folder to start from, or a recipe for a model "
            "with random initial weights.",
            metavar="RUN",
            complete="runs",
        ),
    ],
    tasks: PathText | Sequence[str] | Any,
    overrides: Overrides | None = None,
    *,
    data: Annotated[
        PathText | None,
        Option(
            "The folder of the tasks' files. Default: the cache, with missing files downloaded.",
            metavar="DIR",
        ),
    ] = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    preset: Annotated[
        str,
        Option(
            f"Preset of published settings, with sources: {', '.join(preset_names())}. Settings "
            "on the command line override it.",
            metavar="NAME",
            complete="presets",
        ),
    ] = DEFAULT,
    seeds: Annotated[
        int | None,
        Option(
            "Number of seeds, 0 to N - 1, with the median, the spread and the number of "
            "collapsed runs as result.",
            least=1,
            most=100,
        ),
    ] = None,
    out: Annotated[
        PathText | None,
        Option("The run's folder. Default: runs/TASK, then runs/TASK.2, ..."),
    ] = None,
    resume: Annotated[bool, Option("Resume the run in --out, or the last of this task.")] = False,
    device: Device = None,
    plugins: Plugins = (),
) -> Finetuned:
    """Fine-tune a model on tasks, or a custom table, and score it against baselines.

    ``tasks`` are names of tasks, with files in the folder ``data``; or a table, a path or a
    DataFrame, with ``columns`` by role, as in ``data.columns``:
    ``{"text": "review", "label": "stars"}``. Raises the errors of :mod:`sublayer.errors`.
    """
    is_named = isinstance(tasks, list | tuple) and all(isinstance(name, str) for name in tasks)
    names: list[str] = [*tasks] if is_named else [as_source(tasks)]  # type: ignore[misc]
    table = next((name for name in names if is_table(name)), None)
    folder = None if data is None else fspath(data)
    override_layer(overrides or (), "")  # raises ConfigError for anything but settings
    if isinstance(overrides, Mapping):
        overrides = [
            Unset(f"{key}=unset") if plain(value) is None else f"{key}={as_setting(value)}"
            for key, value in overrides.items()
        ]
    loading = partial(load_finetune, fspath(source), overrides=overrides or (), preset=preset)
    if table is None:
        for name in names:
            if name not in TASKS:
                raise ConfigError(
                    f"{name or 'an empty name'} is neither a task nor the file of a table; "
                    f"`sublayer tasks` lists the tasks{nearest_hint(name, tuple(TASKS))}"
                )
        if not names:
            raise ConfigError(
                "no task is given: name one, such as sst2 (`sublayer tasks` lists them), or the "
                "file of a table of your own with the names of its columns, such as my.csv "
                "--text review --label stars"
            )
        if columns is not None:
            raise ConfigError(f"columns describe a table, and {names[0]} is a task: leave them out")
        finetuning = loading(names, folder)
    else:
        finetuning = loading((), table, columns=_columns(table, names, columns, folder))
    loaded = finetuning.loaded
    refuse_idle()
    path = chosen_folder(None if out is None else Path(out), loaded, resume=resume)
    if not resume:
        check_new(path, seeds)
    if is_first_launched():
        for line in finetuning.describe():
            note(line)
    with stage("starting PyTorch"):
        from sublayer.runs.finetuning import finetune_seeds
        from sublayer.training.world import leave_world

    try:
        results = finetune_seeds(loaded, path, seeds, resume=resume, device=device)
    finally:
        leave_world()
    recipe = loaded.recipe
    return Finetuned(
        path, results, "last" if recipe.train.best_by == "last" else recipe.data.select
    )


def is_table(name: str) -> bool:
    """Return whether a name is a table, not a task: an existing or future file, or a folder."""
    if name in TASKS:
        return False
    return name.lower().endswith(SUFFIXES) or (name != "" and expanded(name).exists())


def _columns(
    table: str,
    names: Sequence[str],
    columns: Mapping[str, str | Sequence[str]] | None,
    data: str | None,
) -> OwnColumns:
    """Return the columns of a single table; raise ConfigError for contradictions."""
    if len(names) > 1:
        others = [name for name in names if name != table] or [table]
        raise ConfigError(
            f"{table} is a table of your own, to be learned alone: leave out {', '.join(others)}, "
            "and name columns by options, such as --label stars"
        )
    if data is not None:
        raise ConfigError(f"{table} holds all the data: leave out --data")
    if not isinstance(columns, Mapping | None):
        raise ConfigError(
            f"columns is {columns!r:.80}: give a mapping of roles to column names, such "
            'as {"text": "review", "label": "stars"}'
        )
    roles: OwnColumns = plain(dict(columns or {}))
    if "text" not in roles or not roles.keys() & {"label", "number", "answer", "target"}:
        there = columns_of(table)
        text, label = (
            shlex.quote(next((name for name in there if name.lower() in usual), other))
            for usual, other in ((_TEXTS, there[0]), (_LABELS, there[-1]))
        )
        raise ConfigError(
            f"{table} has the columns {named(there)}: name the text and the answer, such as "
            f"--text {roles.get('text', text)} --label {roles.get('label', label)}"
        )
    table_of("", roles)
    first, *_ = find_table(table).values()
    if suffix_of(first[0]) not in (".jsonl", ".ndjson", ".json"):  # with possibly different rows
        there = columns_of(table)
        wanted = chain.from_iterable([x] if isinstance(x, str) else x for x in roles.values())
        if missing := [name for name in wanted if name not in there]:
            raise missing_column(first[0], missing[:1], there, missing[1:])
    return roles
