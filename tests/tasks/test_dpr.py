"""DPR's blocks of lines, and the hub's rows of it."""

import json

import pytest

from sublayer.errors import DataError
from sublayer.tasks.registry import TASKS, find_files, read_split

_TWINS = [
    *("The bee landed on the flower because it had pollen.", "it", "The bee,the flower"),
    *("the flower", ""),
    *("The bee landed on the flower because it wanted pollen.", "it", "The bee,the flower"),
    *("The bee", ""),
]


def _read(folder, split="train"):
    task = TASKS["dpr"]
    return read_split(task, split, find_files(task, folder)[split])


def _write(folder, lines, split="train", end="\n"):
    folder.mkdir(exist_ok=True)
    (folder / f"{split}.c.txt").write_bytes(end.join(lines).encode())
    return folder


@pytest.mark.parametrize(("end", "n_last"), [("\n", 0), ("\r\n", 1), ("\n", 3)])
def test_blocks_are_read(tmp_path, end, n_last):
    _write(tmp_path, [*_TWINS[:-1], *[""] * n_last], end=end)
    first, second = _read(tmp_path).examples
    assert first.fields == {"text": _TWINS[0], "pronoun": "it"}
    assert first.choices == ("The bee", "the flower")
    assert [first.label, second.label] == [1, 0]
    assert first.source == second.source != ""


@pytest.mark.parametrize("folder", ["DPR", "anything"])
def test_the_files_are_found_by_their_names(tmp_path, folder):
    place = _write(tmp_path / folder, _TWINS, "test")
    assert len(_read(place, "test").examples) == 2
    assert all(example.is_labelled for example in _read(place, "test").examples)
    if folder != "anything":
        assert len(_read(tmp_path, "test").examples) == 2


def test_the_hubs_rows_are_read(tmp_path):
    candidates = ["The bee", "the flower"]
    row = {"sentence": _TWINS[0], "pronoun": "it", "candidates": candidates, "label": 1}
    (tmp_path / "definite_pronoun_resolution").mkdir()
    path = tmp_path / "definite_pronoun_resolution" / "train.jsonl"
    path.write_text(json.dumps(row))
    (example,) = _read(tmp_path).examples
    assert (example.choices, example.label) == (("The bee", "the flower"), 1)
    path.write_text(json.dumps(row | {"label": 2}))
    with pytest.raises(DataError, match=r"train.jsonl:1: 2 is no label of DPR: 0 or 1"):
        _read(tmp_path)


def test_capitals_that_differ_are_repaired_and_counted(tmp_path):
    _write(tmp_path, ["The bee saw it.", "it", "the bee, the flower", "The bee", ""])
    read = _read(tmp_path)
    assert read.examples[0].label == 0
    assert read.examples[0].choices == ("the bee", "the flower")
    assert read.repaired == {"an answer whose capitals are not the candidate's": 1}


@pytest.mark.parametrize(
    "block, reason, line",
    [
        (["A bee.", "it", "a,b"], "a block of another number of lines than 4", 11),
        (["A bee.", "it", "a,b", "a"], "a sentence without its pronoun", 11),
        (["A bit bee.", "it", "a,b", "a"], "a sentence without its pronoun", 11),
        (["See it.", "it", "a", "a"], "not two candidates, with a comma between them", 11),
        (["See it.", "it", "a,b", "c"], "an answer that is neither candidate", 11),
    ],
)
def test_what_has_no_meaning_is_counted_with_its_place(tmp_path, block, reason, line):
    _write(tmp_path, [*_TWINS, *block, ""])
    read = _read(tmp_path)
    assert len(read.examples) == 2
    assert read.skipped == {reason: 1}
    assert read.firsts[reason].endswith(f"train.c.txt:{line}")


def test_a_file_without_a_block_is_refused(tmp_path):
    _write(tmp_path, ["", ""])
    with pytest.raises(DataError, match=r"train.c.txt has no rows of DPR"):
        _read(tmp_path)
