"""``sublayer tasks``: the tasks that there are, what a folder has of them, and their rows."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublayer.commands.shared.base import JsonOption, emit
from sublayer.commands.tasks.options import (
    AskedArgument,
    DataOption,
    RowOption,
    ShowOption,
    TokenizerOption,
)
from sublayer.errors import ConfigError
from sublayer.nearest import nearest_hint

if TYPE_CHECKING:
    from sublayer.tasks.task import Task

_MOST_ENTRIES = 8
"""Files of a folder that are listed where none is known."""
EXAMPLE = "sublayer tasks rte --show"


def command(
    asked: AskedArgument = None,
    data: DataOption = None,
    show: ShowOption = False,
    row: RowOption = 0,
    tokenizer: TokenizerOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tasks that models are fine-tuned on, and what a folder has of their files.

    Files are found by the names that their publishers or the hub give them, in the folder, in that
    of a suite, such as glue, or of a task, such as SST-2. Rows that have no meaning are left out,
    and counted with the reason and the first place.
    """
    from sublayer.commands.tasks.rendering import render_found, render_task, render_tasks
    from sublayer.tasks.registry import TASKS

    task = TASKS.get(asked or "")
    if task is None:
        _check_none_asked(data, tokenizer, row, is_shown=show)
        folder = None if asked is None else _folder(asked)
        rows = [_row(each, folder, reads=folder is not None) for each in TASKS.values()]
        render = render_tasks if asked is None else render_found
        entries = [] if folder is None else sorted(each.name for each in folder.iterdir())
        result = {"folder": asked, "entries": entries[:_MOST_ENTRIES], "tasks": rows}
        emit(result, as_json, render)
    elif show:
        from sublayer.commands.shared.tokenizers import read_tokenizer
        from sublayer.commands.tasks.show import render_shown, show_task

        read = None if tokenizer is None else read_tokenizer(tokenizer)
        where = None if data is None else str(data)
        emit(show_task(task, where, read, row=row), as_json, render_shown)
    else:
        _check_shown(tokenizer, row)
        emit({"folder": data, "tasks": [_row(task, data, reads=True)]}, as_json, render_task)


def _folder(asked: str) -> Path:
    from sublayer.files.paths import expanded
    from sublayer.tasks.registry import TASKS

    folder = expanded(asked)
    if not folder.is_dir():
        raise ConfigError(f"{asked!r} is no folder and no task{nearest_hint(asked, TASKS)}")
    return folder


def _check_none_asked(
    data: Path | None, tokenizer: Path | None, row: int, *, is_shown: bool
) -> None:
    """Raise ConfigError for options of a task where none is named."""
    if is_shown:
        raise ConfigError("--show shows an example of one task: name it, such as rte")
    if data is not None:
        raise ConfigError("--data is the folder of one task: name the task, or the folder alone")
    _check_shown(tokenizer, row)


def _check_shown(tokenizer: Path | None, row: int) -> None:
    """Raise ConfigError for options of --show without it."""
    for name, is_given in {"--tokenizer": tokenizer is not None, "--row": row > 0}.items():
        if is_given:
            raise ConfigError(f"{name} says what --show shows: add --show")


def _row(task: "Task", folder: Path | None, *, reads: bool) -> dict[str, Any]:
    from sublayer.commands.tasks.found import find_task
    from sublayer.tasks.registry import SUITES
    from sublayer.tasks.releases import RELEASES
    from sublayer.tasks.scoring import METRICS

    release = RELEASES.get(task.name)
    found = find_task(task, folder, reads=reads)
    return {
        "name": task.name,
        "title": task.title,
        "suite": task.suite,
        "kind": task.kind,
        "fields": task.fields,
        "labels": task.labels,
        "numbers": task.numbers if task.kind == "number" else None,
        "metrics": [METRICS[name].title for name in task.metrics],
        "published": task.splits,
        "trained_as": task.trained_as,
        "files": SUITES[task.suite].files.get(task.name, ""),
        "urls": [file.url for file in release.files] if release else [],
        "splits": {split: asdict(each) for split, each in found.items()},
    }
