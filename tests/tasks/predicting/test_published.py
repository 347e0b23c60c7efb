"""Test sets as publishers write them, read as rows that ask."""

import json
from pathlib import Path

import pytest

from sublayer.errors import DataError
from sublayer.tasks.predicting.columns import ToldColumns
from sublayer.tasks.predicting.files import AskedFile, read_asked
from sublayer.tasks.registry import TASKS


def asked(task: str, path: Path, told: ToldColumns | None = None) -> AskedFile:
    return read_asked(TASKS[task], {}, told or ToldColumns(), path)


def test_glue_is_read_by_its_header_and_keeps_its_columns(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text('index\tsentence1\tsentence2\n0\t"A\tB\n1\tC\t\n')
    found = asked("rte", path)
    assert (found.kind, found.names) == ("tsv", ("index", "sentence1", "sentence2"))
    first, second = found.rows
    assert first.example is not None
    assert first.example.fields == {"sentence1": '"A', "sentence2": "B"}
    assert second.example is None
    assert second.values == {"index": "1", "sentence1": "C", "sentence2": ""}


def test_cola_may_have_no_header(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("gj04\t1\t\tIt rains.\ngj04\t0\t*\tIt rain.\n")
    found = asked("cola", path)
    assert found.names == ("source", "label", "mark", "sentence")
    assert [row.example.fields["sentence"] for row in found.rows if row.example] == [
        "It rains.",
        "It rain.",
    ]


def test_labels_of_minus_one_and_of_none_ask_as_all_others(tmp_path):
    path = tmp_path / "test.jsonl"
    rows = [{"premise": "a", "hypothesis": "b", "idx": n, "label": -1} for n in range(3)]
    path.write_text("\n".join(map(json.dumps, rows)))
    found = list(asked("cb", path).rows)
    assert [row.values for row in found] == rows
    assert all(row.example is not None for row in found)


def test_rows_that_are_written_twice_are_answered_twice(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("index\tsentence\n0\ta\n0\ta\n0\tb\n")
    assert len(list(asked("sst2", path).rows)) == 3


def test_what_is_nested_is_read_as_its_publisher_wrote_it(tmp_path):
    question = {"id": "q1", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
    paragraph = {"context": "Ann won.", "qas": [question]}
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))
    found = asked("squad", path)
    assert (found.kind, found.names) == ("jsonl", ("id", "context", "question"))
    [row] = found.rows
    assert row.values == {"id": "q1", "context": "Ann won.", "question": "Who?"}


def test_a_passage_of_race_becomes_a_row_for_each_question(tmp_path):
    path = tmp_path / "race_test_middle.jsonl"
    passage = {
        "id": "middle1.txt",
        "article": "Ann won.",
        "questions": ["Who?", "_ won."],
        "options": [["Ann", "Eve"], ["Eve", "Ann"]],
        "answers": ["A", "B"],
    }
    path.write_text(json.dumps(passage))
    rows = list(asked("race_middle", path).rows)
    assert [row.values["choices"] for row in rows] == [["Ann", "Eve"], ["Eve", "Ann"]]
    assert [row.values["id"] for row in rows] == ["middle1.txt.0", "middle1.txt.1"]


def test_a_folder_has_the_test_set(tmp_path):
    folder = tmp_path / "RTE"
    folder.mkdir()
    (folder / "test.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    assert len(list(asked("rte", tmp_path).rows)) == 1
    (folder / "test.tsv").rename(folder / "dev.tsv")
    with pytest.raises(DataError, match="has dev of RTE, and not one test set"):
        asked("rte", tmp_path)


def test_a_test_set_of_several_files_is_read_as_its_publisher_wrote_it(tmp_path):
    folder = tmp_path / "RACE" / "test" / "middle"
    folder.mkdir(parents=True)
    for number in (10, 2):
        passage = {
            "id": f"middle{number}.txt",
            "article": "Ann won.",
            "questions": ["Who?"],
            "options": [["Ann", "Eve"]],
        }
        (folder / f"{number}.txt").write_text(json.dumps(passage))
    found = asked("race_middle", tmp_path)
    assert found.kind == "jsonl"
    assert [row.values["id"] for row in found.rows] == ["middle2.txt.0", "middle10.txt.0"]
    with pytest.raises(DataError, match="has the test set of RACE middle in 2 files"):
        asked("race_middle", tmp_path, ToldColumns("article"))


def test_a_row_that_is_too_long_has_no_place_for_an_answer(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("index\tsentence\n0\ta\n1\tb\tc\n")
    with pytest.raises(DataError, match=r"test\.tsv:3 has more than 2 fields"):
        list(asked("sst2", path).rows)


def test_a_row_that_is_too_short_is_answered_where_its_texts_are_there(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("sentence1\tsentence2\tnote\na\tb\nc\n")
    first, second = asked("rte", path).rows
    assert first.example is not None
    assert second.example is None


def test_what_is_of_another_task_names_the_missing_column(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("index\tsentence\n0\ta\n")
    with pytest.raises(DataError, match="no column 'premise' or 'sentence1' or 'Premise'"):
        asked("mnli", path)
    with pytest.raises(DataError, match="no column 'said'"):
        asked("sst2", path, ToldColumns("said"))
