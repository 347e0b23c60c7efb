"""``sublayer tasks``: the tasks that there are, their files in a folder, and their examples."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

from sublayer.cli.build import Json, JsonObject, client_of, emit
from sublayer.counts import count
from sublayer.errors import ConfigError, DataError
from sublayer.nearest import nearest_hint
from sublayer.options import Argument, Option
from sublayer.system.terminal import hanging, page_width, paragraph
from sublayer.tables import table

if TYPE_CHECKING:
    from sublayer.data.tasks.figure import Figure
    from sublayer.data.tokenizers.base import Tokenizer
    from sublayer.tasks.task import Example, Task

EXAMPLE = "sublayer tasks rte --show"

SUITE_TITLES = {
    "glue": "GLUE",
    "superglue": "SuperGLUE",
    "squad": "SQuAD",
    "race": "RACE",
    "nli": "inference",
    "cloze": "Story Cloze",
    "dpr": "pronouns",
}
"""The headings of the tables of tasks."""
_MOST_ENTRIES = 8
"""Files of a folder that are listed where none is known."""
_HAPPENED = {"left_out": "left out", "repaired": "repaired", "kept": "kept as they are"}
_INDENT = "    "
_NEXT = (
    "Files that are not in the cache are downloaded where a task is trained without a folder of "
    "its files. What a folder has: `sublayer tasks DIR`; a task in each format: "
    "`sublayer tasks NAME --show`."
)
_READERS = {
    "pair": "pair, for encoders",
    "traversal": "traversal, for decoders",
    "text": "text, for encoder-decoders and decoders",
}
_MOST_TOKENS = 48
"""Of one text; of a longer one as many are shown of its beginning and of its end as this halved."""
_WIDTH = 100

Name = Annotated[
    str | None,
    Argument(
        "A folder, to see what it has of each task; or a task. Without it, all are "
        "listed, with what the cache has.",
        metavar="DIR|NAME",
        complete="tasks",
    ),
]
Data = Annotated[
    Path | None, Option("The folder of the task's files. Default: the cache.", metavar="DIR")
]
Show = Annotated[
    bool,
    Option(
        "Show an example as models read it, token by token, in each format. Without --data, names "
        "stand for its texts."
    ),
]
Row = Annotated[
    int,
    Option("The example to show, from 0, of the first split that is there.", least=0, most=10**9),
]
Tokens = Annotated[
    Path | None,
    Option(
        "Whose tokens to show: a run, a model's folder, or a tokenizer's file or folder. "
        "Default: words.",
        metavar="RUN",
        complete="runs",
    ),
]


@client_of()
def command(
    name: Name = None,
    data: Data = None,
    show: Show = False,
    row: Row = 0,
    tokenizer: Tokens = None,
    as_json: Json = False,
) -> None:
    """List the tasks that models are fine-tuned on, and their files in a folder.

    Files are found by the names that their publishers or the hub give them, in the folder, in that
    of a suite, such as glue, or of a task, such as SST-2. Rows that have no meaning are left out,
    and counted with the reason and the first place.
    """
    from sublayer.tasks.registry import TASKS

    task = TASKS.get(name or "")
    if task is None and show:
        raise ConfigError("--show shows an example of one task: name it, such as rte")
    if task is None and data is not None:
        raise ConfigError("--data is the folder of one task: name the task, or the folder alone")
    for option, is_given in {"--tokenizer": tokenizer is not None, "--row": row > 0}.items():
        if is_given and not show:
            raise ConfigError(f"{option} says what --show shows: add --show")
    if task is None:
        folder = None if name is None else _folder(name, TASKS)
        rows = [_described(listed, folder, reads=folder is not None) for listed in TASKS.values()]
        entries = [] if folder is None else sorted(path.name for path in folder.iterdir())
        result = {"folder": name, "entries": entries[:_MOST_ENTRIES], "tasks": rows}
        emit(result, as_json, _render_tasks if name is None else _render_found)
    elif show:
        from sublayer.api.tokenizing import find_tokenizer

        read = None if tokenizer is None else find_tokenizer(tokenizer)
        emit(_shown(task, data, read, row), as_json, _render_shown)
    else:
        described = _described(task, data, reads=True)
        emit({"folder": data, "tasks": [described]}, as_json, lambda _: _render_task(described))


def _folder(name: str, tasks: Collection[str]) -> Path:
    from sublayer.files.paths import expanded

    folder = expanded(name)
    if not folder.is_dir():
        raise ConfigError(f"{name!r} is no folder and no task{nearest_hint(name, tasks)}")
    return folder


def _described(task: "Task", folder: Path | None, *, reads: bool) -> dict[str, Any]:
    """Describe a task and its files in a folder, or without one in the cache."""
    from sublayer.tasks.available import find_task
    from sublayer.tasks.registry import ROWS
    from sublayer.tasks.releases import RELEASES
    from sublayer.tasks.scoring import METRICS

    release = RELEASES.get(task.name)
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
        "files": ROWS[task.name].files,
        "urls": [file.url for file in release.files] if release else [],
        "splits": {
            split: asdict(rows) for split, rows in find_task(task, folder, reads=reads).items()
        },
    }


def _render_tasks(result: JsonObject) -> str:
    return "\n\n".join([_table(result["tasks"], "in the cache"), paragraph(_NEXT)])


def _render_found(result: JsonObject) -> str:
    """Format the tasks that are in a folder, and the faults of their files."""
    there = [task for task in result["tasks"] if task["splits"]]
    if not there:
        listed = ", ".join(result["entries"]) or "nothing"
        return (
            f"no files of a task in {result['folder']}, by the names that their publishers or "
            "the hub give them, such as SST-2/train.tsv or sst2/train-00000-of-00001.parquet: it "
            f"has {listed}. `sublayer tasks NAME` lists the names of a task's files"
        )
    absent = [task["name"] for task in result["tasks"] if not task["splits"]]
    parts = [
        _table(there, "rows"),
        "\n".join(line for task in there for line in _notes(task)),
        paragraph(f"not there: {', '.join(absent)}") if absent else "",
    ]
    return "\n\n".join(filter(None, parts))


def _render_task(task: JsonObject) -> str:
    answer = {"choice": "one of the example's choices", "span": "a span of the passage"}
    if task["labels"]:
        answer[task["kind"]] = " or ".join(task["labels"])
    elif task["kind"] == "number":
        answer["number"] = "a number from {:g} to {:g}".format(*task["numbers"])
    facts = {
        "texts": ", ".join(task["fields"]),
        "answer": answer[task["kind"]],
        "score": " and ".join(task["metrics"]),
        "splits": ", ".join(task["published"]),
        "answered by": f"a model of {task['trained_as']}" if task["trained_as"] else "",
        "files": task["files"],
        "served at": ", ".join(task["urls"]) or "nowhere without asking",
        "found": _split_sizes(task) if task["splits"] else "nothing",
    }
    lines = [f"{task['name']}: {task['title']} ({SUITE_TITLES[task['suite']]})"]
    lines += [hanging(text, f"  {name:<12}", " " * 14) for name, text in facts.items() if text]
    return "\n".join([*lines, *_notes(task)])


def _table(tasks: Sequence[JsonObject], found: str) -> str:
    rows = [
        (task["name"], task["title"], task["kind"], ", ".join(task["metrics"]), _split_sizes(task))
        for task in tasks
    ]
    return table(("task", "title", "kind", "metrics", found), rows, width=page_width())


def _split_sizes(task: JsonObject) -> str:
    parts = []
    for name, split in task["splits"].items():
        size = "" if split["rows"] is None else f" {split['rows']:,}"
        parts.append(f"{name} ?" if split["problem"] else f"{name}{size}")
    return ", ".join(parts)


def _notes(task: Mapping[str, Any]) -> Iterator[str]:
    """Report rows of each split left out or repaired, with the first, or why it cannot be read."""
    for name, split in task["splits"].items():
        of = f"{task['name']}, {name}: "
        if split["problem"]:
            yield hanging(f"{of}cannot be read: {split['problem']}", "", _INDENT)
        for key, happened in _HAPPENED.items():
            for reason, counted in split[key].items():
                rows = count(counted["rows"], "row")
                text = f"{of}{rows} {happened}: {reason}; the first is {counted['first']}"
                yield hanging(text, "", _INDENT)


def _shown(
    task: "Task", folder: Path | None, tokenizer: "Tokenizer | None", row: int
) -> dict[str, Any]:
    """Describe the example ``row``, from 0, of a task's first split in a folder, in each format.

    Without a folder, the names of its parts stand for its texts. Raises DataError where there is no
    such example.
    """
    from sublayer.data.tasks.figure import draw_figures
    from sublayer.tasks.registry import find_files, read_split, wording_of

    where, example = "", wording_of(task).outline()
    if folder is not None:
        files = find_files(task, folder)
        if not files:
            raise DataError(
                f"{folder} has no files of {task.title}: `sublayer tasks {folder}` lists what it "
                "has"
            )
        split = next(name for name in task.splits if name in files)
        examples = read_split(task, split, files[split]).examples
        if row >= len(examples):
            raise DataError(
                f"{split} of {task.title} has {len(examples)} rows: --row counts from 0"
            )
        where, example = f"{split}, id {examples[row].id}", examples[row]
    return {
        "task": task.name,
        "title": task.title,
        "example": where,
        "answer": _answer(task, example),
        "formats": {
            figure.format: _figure(figure) for figure in draw_figures(task, example, tokenizer)
        },
    }


def _answer(task: "Task", example: "Example") -> str | int | float | None:
    if not example.is_labelled:
        return None
    if example.label is None:
        return example.answers[0].text if example.answers else "none"
    if task.kind == "classes":
        return task.labels[int(example.label)]
    return example.choices[int(example.label)] if task.kind == "choice" else example.label


def _figure(figure: "Figure") -> dict[str, Any]:
    tokens = [token for row in figure.rows for token in row]
    return {
        "rows": [[token.text for token in row] for row in figure.rows],
        "marks": list(dict.fromkeys(token.text for token in tokens if token.is_mark)),
        "target": [token.text for token in figure.target],
        "problem": figure.problem,
    }


def _render_shown(result: JsonObject) -> str:
    of = f", {result['example']}" if result["example"] else ""
    lines = [f"{result['title']}{of}"]
    for name, figure in result["formats"].items():
        texts = [figure["problem"]] if figure["problem"] else []
        texts += [" ".join(_shortened(row, figure["marks"])) for row in figure["rows"]]
        if figure["target"]:
            texts.append(" ".join(["->", *_shortened(figure["target"], figure["marks"])]))
        lines += ["", _READERS[name], *map(_indented, texts)]
    if result["answer"] is not None:
        lines += ["", f"answer: {result['answer']}"]
    return "\n".join(lines)


def _shortened(row: Sequence[str], marks: Collection[str]) -> Iterator[str]:
    """Return a row's tokens with the middle of long texts left out."""
    for _, text in groupby(row, key=lambda token: token in marks):
        tokens = list(text)
        n_left_out = len(tokens) - _MOST_TOKENS
        if n_left_out > 0:
            half = _MOST_TOKENS // 2
            yield from (*tokens[:half], f"[... {n_left_out:,} more ...]", *tokens[-half:])
        else:
            yield from tokens


def _indented(text: str) -> str:
    return fill(
        text,
        _WIDTH,
        initial_indent="  ",
        subsequent_indent="      ",
        break_long_words=False,
        break_on_hyphens=False,
    )
