"""A run keeps its items as they are, and a file that is none of its is refused in a line."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from sublayer.errors import CheckpointError
from sublayer.evaluation.items import Items, ItemTable
from sublayer.files.arrays import dump_arrays
from sublayer.runs.items import ITEMS, read_items, write_items
from tests.breadth import rows

DIGEST = "ab" * 32


def some_items() -> Items:
    windows = ItemTable(
        unit="a window",
        digest=DIGEST,
        columns={"nats": np.array([1.25, 1 / 3, 7.0]), "tokens": np.array([3, 70_000, 5])},
        documents=np.array([0, 0, 2]),
    )
    counts = np.arange(20, dtype=np.int64).reshape(2, 10)
    lines = ItemTable("a line", DIGEST, {"bleu": counts}, None)
    return Items("test", "cd" * 32, {"windows": windows, "lines": lines})


def header_of(**changed: Any) -> dict[str, Any]:
    table = {"unit": "a window", "digest": DIGEST, "n_items": 2, "columns": ["nats"]}
    table |= {"has_documents": True}
    header = {"version": 1, "split": "test", "sha256": "", "metrics": {}, "tables": {"w": table}}
    table.update({name: value for name, value in changed.items() if name in table})
    header.update({name: value for name, value in changed.items() if name in header})
    return header


def file_of(arrays: dict[str, Any] | None = None, **changed: Any) -> bytes:
    own = {"w/nats": np.array([1.0, 2.0]), "w/documents": np.array([0, 1])}
    return dump_arrays({**own, **(arrays or {})}, header_of(**changed))


def test_items_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert read_items(tmp_path) is None
    items = some_items()
    write_items(tmp_path, items, {"loss": "windows", "sop_accuracy": "sop_pairs"})
    found = read_items(tmp_path)
    assert found is not None
    assert (found.split, found.sha256) == (items.split, items.sha256)
    assert list(found.tables) == list(items.tables)
    for name, table in items.tables.items():
        read = found.tables[name]
        assert (read.unit, read.digest, read.n_items) == (table.unit, table.digest, table.n_items)
        assert np.array_equal(read.documents, table.documents)  # type: ignore[arg-type]
        for column, values in table.columns.items():
            assert np.array_equal(read.columns[column], values)
    # What was not scored is not named.
    data = (tmp_path / ITEMS).read_bytes()
    entries = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    header = json.loads(entries["__metadata__"]["header"])
    assert header["metrics"] == {"loss": "windows"}


_LONG = (1 << 60).to_bytes(8, "little")
HOSTILE: dict[str, tuple[bytes, str]] = {
    "a header that is longer than the file": (_LONG + b"{}", "no safetensors file"),
    "a file cut short": (file_of()[:-1], "is damaged"),
    "no header": (save({"w/nats": np.ones(2)}), "has no header"),
    "another version": (file_of(version=2), "version 2"),
    "numbers that are not finite": (file_of({"w/nats": np.array([1.0, np.nan])}), "not finite"),
    "a table of tables": (file_of({"w/nats": np.ones((2, 1, 1))}), "shape (2, 1, 1)"),
    "a missing column": (file_of(columns=["nats", "tokens"]), "it has no 'w/tokens'"),
    "an array of no table": (file_of({"x\ny": np.ones(2)}), "of no table"),
    "documents before the first": (file_of({"w/documents": np.array([-1, 0])}), "no places"),
    "documents that are not whole": (file_of({"w/documents": np.ones(2)}), "no places"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_in_a_line(tmp_path: Path, name: str) -> None:
    data, said = HOSTILE[name]
    (tmp_path / ITEMS).write_bytes(data)
    with pytest.raises(CheckpointError) as error:
        read_items(tmp_path)
    assert said in str(error.value)
    assert "\n" not in str(error.value) and ITEMS in str(error.value)


@pytest.mark.parametrize("place", rows(range(0, len(file_of()), 7), 3))
def test_a_flipped_byte_is_refused_or_changes_a_number(tmp_path: Path, place: int) -> None:
    data = bytearray(file_of())
    data[place] ^= 0x15
    (tmp_path / ITEMS).write_bytes(bytes(data))
    with suppress(CheckpointError):
        read_items(tmp_path)
