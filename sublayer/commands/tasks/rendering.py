"""How the table of tasks is printed, and below it what was left out of their files."""

from collections.abc import Iterator, Mapping
from typing import Any

from sublayer.commands.shared.base import JsonObject
from sublayer.counts import count
from sublayer.system.terminal import hanging, page_width, paragraph
from sublayer.tables import table

SUITE_TITLES = {
    "glue": "GLUE",
    "superglue": "SuperGLUE",
    "squad": "SQuAD",
    "race": "RACE",
    "nli": "inference",
    "cloze": "Story Cloze",
    "dpr": "pronouns",
}
"""What the tables of tasks are headed by."""
_HAPPENED = {"left_out": "left out", "repaired": "repaired", "kept": "kept as they are"}
_INDENT = "    "
_NEXT = (
    "Files that are not in the cache are downloaded where a task is trained without a folder of "
    "its files. What a folder has: `sublayer tasks DIR`; a task in each format: "
    "`sublayer tasks NAME --show`."
)


def render_tasks(result: JsonObject) -> str:
    """Render the table of tasks, with what the cache has of each."""
    parts = [_table(result["tasks"], "in the cache"), paragraph(_NEXT)]
    return "\n\n".join(parts)


def render_found(result: JsonObject) -> str:
    """Render what was found in a folder: the tasks that are there, and what is wrong with them."""
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


def render_task(result: JsonObject) -> str:
    """Render one task: what it asks, and what was found of it."""
    (task,) = result["tasks"]
    asked = {
        "texts": ", ".join(task["fields"]),
        "answer": _answer(task),
        "score": " and ".join(task["metrics"]),
        "splits": ", ".join(task["published"]),
        "answered by": f"a model of {task['trained_as']}" if task["trained_as"] else "",
        "files": task["files"],
        "served at": ", ".join(task["urls"]) or "nowhere without asking",
        "found": _found(task) if task["splits"] else "nothing",
    }
    lines = [f"{task['name']}: {task['title']} ({SUITE_TITLES[task['suite']]})"]
    for name, text in asked.items():
        if text:
            lines.append(hanging(text, f"  {name:<12}", " " * 14))
    return "\n".join([*lines, *_notes(task)])


def _table(tasks: list[dict[str, Any]], found: str) -> str:
    rows = []
    for task in tasks:
        metrics = ", ".join(task["metrics"])
        rows.append((task["name"], task["title"], task["kind"], metrics, _found(task)))
    headings = ("task", "title", "kind", "metrics", found)
    return table(headings, rows, width=page_width())


def _found(task: Mapping[str, Any]) -> str:
    parts = []
    for name, split in task["splits"].items():
        if split["problem"]:
            parts.append(f"{name} ?")
        elif split["rows"] is None:
            parts.append(name)
        else:
            parts.append(f"{name} {split['rows']:,}")
    return ", ".join(parts)


def _answer(task: Mapping[str, Any]) -> str:
    if task["labels"]:
        return " or ".join(task["labels"])
    if task["kind"] == "number":
        low, high = task["numbers"]
        return f"a number from {low:g} to {high:g}"
    return {"choice": "one of the example's choices", "span": "a span of the passage"}[task["kind"]]


def _notes(task: Mapping[str, Any]) -> Iterator[str]:
    """Say what was left out of each split, repaired or cannot be read, with the first place."""
    for name, split in task["splits"].items():
        of = f"{task['name']}, {name}: "
        if split["problem"]:
            yield hanging(f"{of}cannot be read: {split['problem']}", "", _INDENT)
        for key, happened in _HAPPENED.items():
            for reason, counted in split[key].items():
                rows = count(counted["rows"], "row")
                text = f"{of}{rows} {happened}: {reason}; the first is {counted['first']}"
                yield hanging(text, "", _INDENT)
