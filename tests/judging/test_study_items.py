"""Items of a comparison: of its runs' folders, and the one file of earlier versions."""

import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from sublayer.errors import CheckpointError
from sublayer.evaluation.items import Items, ItemTable, write_items
from sublayer.files.arrays import dump_arrays
from sublayer.judging.folders import STUDY_ITEMS, read_comparison_items, read_study_items

JUNK = lzma.compress(b"x" * 100)
OLD = Path(__file__).parents[1] / "golden" / "old"


def study(folder: Path, runs: dict[str, float], values: dict[str, float]) -> dict:
    """Runs by their folders, each with its accuracy; returns results with the arms' values."""
    for path, value in runs.items():
        run = folder / path
        run.mkdir(parents=True)
        correct = np.array([value, 0.0])
        table = ItemTable("an example", "ab" * 32, {"correct": correct}, None)
        write_items(run, Items("test", "", {"pairs": table}), {})
        (run / "test.json").write_text(json.dumps({"accuracy": value}))
    arms = [{"name": name, "seeds": [3], "values": [value]} for name, value in values.items()]
    return {"metric": "accuracy", "split": "test", "arms": arms}


def scores(kept) -> dict[str, float]:
    return {run.arm: float(run.items.tables["pairs"].columns["correct"][0]) for run in kept}


def test_items_are_those_of_the_runs_that_the_results_name(tmp_path):
    runs = {"arms/0-a/lr=1/seed-3": 0.5, "arms/0-a/lr=2/seed-3": 0.6, "arms/1-x-a/seed-3": 0.6}
    results = study(tmp_path, runs, {"a": 0.6, "x a": 0.6})
    assert scores(read_comparison_items(tmp_path, results)) == {"a": 0.6, "x a": 0.6}
    # Two trials with the score of the arm: neither is known to be chosen.
    (tmp_path / "arms/0-a/lr=1/seed-3/test.json").write_text('{"accuracy": 0.6}')
    assert scores(read_comparison_items(tmp_path, results)) == {"x a": 0.6}


def test_items_of_finished_runs_are_read_where_each_was_scored(tmp_path):
    values = {"a": 0.5, "b": 0.6}
    results = study(tmp_path, {"elsewhere/seed-3": 0.5, "scores/b/seed-3": 0.6}, values)
    runs = [str(tmp_path / "elsewhere/seed-3")]
    (tmp_path / "runs.json").write_text(json.dumps({"runs": runs}))
    assert scores(read_comparison_items(tmp_path, results)) == values


@pytest.mark.parametrize("name", ["cd54610/tuned", "d99a9b4/study", "ff3bb8a/study"])
def test_items_of_earlier_versions_are_read(name, tmp_path):
    results = json.loads((OLD / name / "results.json").read_text())
    kept = read_comparison_items(OLD / name, results)
    expected = [arm["name"] for arm in results["arms"] for _ in arm["seeds"]]
    assert [run.arm for run in kept] == expected
    if not (OLD / name / STUDY_ITEMS).exists():
        return
    (tmp_path / STUDY_ITEMS).write_bytes((OLD / name / STUDY_ITEMS).read_bytes())
    for one, rounded in zip(kept, read_comparison_items(tmp_path, results), strict=True):
        assert (one.arm, one.seed) == (rounded.arm, rounded.seed)
        before, after = one.items.tables["windows"], rounded.items.tables["windows"]
        assert after.digest == before.digest
        assert after.documents.tolist() == before.documents.tolist()
        assert after.columns["tokens"].tolist() == before.columns["tokens"].tolist()
        assert np.abs(after.columns["nats"] - before.columns["nats"]).max() <= 2.0**-10


def altered(**changed) -> bytes:
    runs = [{"arm": f"arm {seed}", "seed": seed, "split": "test", "sha256": ""} for seed in (0, 1)]
    group = {"table": "windows", "unit": "a window", "digest": "ab" * 32, "runs": [0, 1]}
    group |= {"added": 2, "columns": ["nats", "tokens"], "steps": {"nats": 0.25}}
    group |= {"shared": ["tokens"], "has_documents": True, **changed}
    arrays = {"0/nats": np.full((2, 12), 8), "0/tokens": np.ones((1, 12))}
    arrays["0/documents"] = np.zeros(12, dtype=np.int64)
    return lzma.compress(dump_arrays(arrays, {"version": 1, "runs": runs, "groups": [group]}))


@pytest.mark.parametrize("data, message", [
    (lambda: altered(runs=[0, 7]), "it has no run 7"), (lambda: altered(runs=[0]), "does not fit"),
    (lambda: altered(shared=[]), "does not fit"), (lambda: altered(steps={"nats": "x"}), "steps"),
    (lambda: b"no archive", STUDY_ITEMS), (lambda: JUNK[:-20], STUDY_ITEMS),
    (lambda: JUNK, STUDY_ITEMS), (lambda: b"\xfd7zXZ\0 no items", "is damaged"),
    (lambda: lzma.compress(b"\0" * (129 << 20)), STUDY_ITEMS),  # 129 MiB
])  # fmt: skip
def test_damaged_files_of_items_are_refused_in_a_line(tmp_path, data, message):
    path = tmp_path / STUDY_ITEMS
    path.write_bytes(altered())
    first, second = read_study_items(path)
    assert (first.arm, second.seed, first.added) == ("arm 0", 1, {"windows": 2})
    assert second.items.tables["windows"].columns["nats"].tolist() == [2.0] * 12
    path.write_bytes(data())
    with pytest.raises(CheckpointError) as error:
        read_study_items(path)
    assert message in str(error.value) and "\n" not in str(error.value)
