"""A study's items fit into a record: rounded, added together above the limit, never dropped."""

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sublayer.errors import CheckpointError
from sublayer.evaluation.items import Items, ItemTable
from sublayer.files.arrays import dump_arrays
from sublayer.study.items.compaction import (
    COARSE,
    FINE,
    Compaction,
    Stack,
    add_neighbours,
    round_column,
)
from sublayer.study.items.file_header import STUDY_ITEMS, RunItems
from sublayer.study.items.reading import read_study_items
from sublayer.study.items.writing import write_study_items

METRICS = {"loss": "windows"}


def run_of(
    seed: int,
    n_items: int = 12,
    *,
    n_documents: int | None = 3,
    digest: str = "ab" * 32,
    spread: float = 30.0,
) -> RunItems:
    """A run whose windows of 128 tokens cost about 200 nats."""
    rng = np.random.default_rng(seed)
    documents = None if n_documents is None else np.arange(n_items) * n_documents // n_items
    columns = {
        "nats": rng.normal(200, spread, n_items),
        "tokens": np.full(n_items, 128),
        "bytes": np.arange(n_items) % 7 + 500,
        "correct": rng.integers(0, 20, n_items),
    }
    table = ItemTable("a window", digest, columns, documents)
    items = Items("test", "cd" * 32, {"windows": table})
    return RunItems(f"arm {seed % 2}", seed, items, {"windows": 1})


def header_of(path: Path) -> dict[str, Any]:
    data = lzma.decompress(path.read_bytes())
    entries = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    header: dict[str, Any] = json.loads(entries["__metadata__"]["header"])
    return header


def test_neighbours_of_a_document_are_added_worked_out_by_hand() -> None:
    columns = {"nats": np.array([[1.0, 2, 4, 8, 16]]), "counts": np.ones((1, 5, 2), dtype=np.uint8)}
    # Documents 0 and 1 take turns, as the examples of a pass do.
    stack = Stack(columns, np.array([0, 1, 0, 1, 0]))
    found = add_neighbours(stack, Compaction(added=2))
    # Of document 0: 1 + 4 and 16; of document 1: 2 + 8.
    assert found.columns["nats"].tolist() == [[5.0, 16.0, 10.0]]
    assert found.columns["counts"].tolist() == [[[2, 2], [1, 1], [2, 2]]]
    assert found.documents is not None and found.documents.tolist() == [0, 0, 1]
    across = add_neighbours(stack, Compaction(added=4, across_documents=True))
    assert across.columns["nats"].tolist() == [[1.0 + 4 + 16 + 2, 8.0]]
    assert across.documents is not None and across.documents.tolist() == [0, 1]
    without = add_neighbours(Stack(columns, None), Compaction(added=2))
    assert without.columns["nats"].tolist() == [[3.0, 12.0, 16.0]]
    assert add_neighbours(stack, Compaction()) is stack
    # Counts are added beyond their type.
    many = Stack({"counts": np.full((1, 4), 200, dtype=np.uint8)}, None)
    assert add_neighbours(many, Compaction(added=4)).columns["counts"].tolist() == [[800]]


def test_rounding_is_within_a_step_and_of_a_sum_within_half() -> None:
    column = np.random.default_rng(0).normal(200, 30, (3, 5000))
    found = round_column(column, 0.25) * 0.25
    assert np.abs(found - column).max() <= 0.25 * (1 + 1e-9)
    assert np.abs(found.sum(1) - column.sum(1)).max() <= 0.125 * (1 + 1e-6)


def test_a_small_study_keeps_every_item(tmp_path: Path) -> None:
    runs = [run_of(seed) for seed in range(4)] + [run_of(4, 5, digest="ef" * 32)]
    path = tmp_path / STUDY_ITEMS
    write_study_items(path, "demo", runs, METRICS, missing=["arm 1, seed 9"])
    header = header_of(path)
    assert (header["study"], header["missing"]) == ("demo", ["arm 1, seed 9"])
    # The one that scored other items stands apart; what is equal in all runs is stored once.
    assert [group["runs"] for group in header["groups"]] == [[0, 1, 2, 3], [4]]
    assert header["groups"][0]["shared"] == ["tokens", "bytes"]
    assert header["groups"][0]["steps"] == {"nats": FINE}
    for run, found in zip(runs, read_study_items(path), strict=True):
        assert (found.arm, found.seed, found.added) == (run.arm, run.seed, {"windows": 1})
        before, after = run.items.tables["windows"], found.items.tables["windows"]
        assert after.digest == before.digest
        assert after.documents is not None and before.documents is not None
        assert after.documents.tolist() == before.documents.tolist()
        for name in ("tokens", "bytes", "correct"):
            assert after.columns[name].tolist() == before.columns[name].tolist()
        assert np.abs(after.columns["nats"] - before.columns["nats"]).max() <= FINE


def check_sums(runs: list[RunItems], found: list[RunItems]) -> None:
    """Nothing is dropped: all sums are as before, those of nats within half a step."""
    for run, read in zip(runs, found, strict=True):
        before, after = run.items.tables["windows"].sums(), read.items.tables["windows"].sums()
        for name in ("tokens", "bytes", "correct"):
            assert after[name] == before[name]
        assert abs(float(after["nats"] - before["nats"])) <= COARSE


@pytest.mark.parametrize("n_documents", [None, 300])
def test_any_limit_is_held_as_long_as_an_item_is_left(
    tmp_path: Path, n_documents: int | None
) -> None:
    runs = [run_of(seed, 300, n_documents=n_documents) for seed in range(3)]
    path = tmp_path / STUDY_ITEMS
    sizes = []
    for limit in (100_000, 3000, 2000, 1500, 10):
        write_study_items(path, "small", runs, METRICS, max_bytes=limit)
        sizes.append(path.stat().st_size)
        assert sizes[-1] <= limit or limit == 10
        check_sums(runs, read_study_items(path))
    assert sizes == sorted(sizes, reverse=True)
    (group,) = header_of(path)["groups"]
    assert group["added"] >= 300
    # Documents of one item each are only smaller together, and the header says so.
    assert group["across_documents"] is (n_documents == 300)


def altered(tmp_path: Path, **changed: Any) -> bytes:
    path = tmp_path / "whole"
    write_study_items(path, "demo", [run_of(0), run_of(1)], METRICS)
    header = header_of(path)
    header["groups"][0].update(changed)
    n_rows = {"nats": 2, "tokens": 1, "bytes": 1, "correct": 2}
    arrays = {f"0/{name}": np.ones((n, 12)) for name, n in n_rows.items()}
    arrays["0/documents"] = np.zeros(12, dtype=np.int64)
    return lzma.compress(dump_arrays(arrays, header))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"runs": [0, 7]}, "it has no run 7"),
        ({"runs": [0]}, "does not fit"),
        ({"shared": []}, "does not fit"),
        ({"steps": {"nats": "x"}}, "steps"),
    ],
    ids=str,
)
def test_a_damaged_header_is_refused_in_a_line(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    path = tmp_path / STUDY_ITEMS
    path.write_bytes(altered(tmp_path))
    assert len(read_study_items(path)) == 2
    path.write_bytes(altered(tmp_path, **changed))
    with pytest.raises(CheckpointError) as error:
        read_study_items(path)
    assert message in str(error.value) and "\n" not in str(error.value)


JUNK = lzma.compress(b"x" * 100)


@pytest.mark.parametrize(
    "data",
    [b"no archive", JUNK[:-20], JUNK, lzma.compress(b"\0" * (129 << 20))],
    ids=["no archive", "cut short", "no arrays", "of 129 MiB unpacked"],
)
def test_what_is_no_file_of_items_is_refused_in_a_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / STUDY_ITEMS
    path.write_bytes(data)
    with pytest.raises(CheckpointError) as error:
        read_study_items(path)
    assert STUDY_ITEMS in str(error.value) and "\n" not in str(error.value)
