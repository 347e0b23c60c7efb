"""Files of tasks, written by their endings and read by a task's name."""

import json
from pathlib import Path
from typing import Any

from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.registry import TASKS, find_files, read_split


def write(path: Path, content: Any) -> Path:
    """Write a table's rows, as lines of JSON or as Parquet; a text or bytes as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet" and isinstance(content, list):
        from pyarrow import Table
        from pyarrow.parquet import write_table

        write_table(Table.from_pylist(content), path)
        return path
    if isinstance(content, dict):
        content = json.dumps(content)
    elif isinstance(content, list):
        content = "\n".join(map(json.dumps, content))
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(name: str, folder: Path, split: str = "dev") -> ReadSplit:
    return read_split(TASKS[name], split, find_files(TASKS[name], folder)[split])


def labels(split: ReadSplit) -> list[Any]:
    return [example.label for example in split.examples]


def ids(split: ReadSplit) -> list[str]:
    return [example.id for example in split.examples]


def texts(split: ReadSplit) -> list[list[str]]:
    return [list(example.fields.values()) for example in split.examples]
