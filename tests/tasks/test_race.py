"""RACE's files: a passage each, joined, as lines of JSON, and as the hub flattens them."""

import json
from pathlib import Path

import pytest

from sublayer.errors import DataError
from sublayer.tasks.registry import TASKS, find_files
from tests.tasks.files import ids, labels, read, write

OPTIONS = [["to eat", "to sleep", "to run", "to {swim}"], ["one", "two", "three", "four"]]
QUESTIONS = ["He went home   _  .", "How many?"]


def _passage(id_: str, answers=("D", "A")):
    article = f'The passage "{id_}".\nIt ends }} {{.'
    asked = {"questions": QUESTIONS, "options": OPTIONS, "answers": list(answers)}
    return {"id": id_, "article": article, **asked}


def _flat(*names):
    return [
        {"example_id": name, "article": _passage(name)["article"], "answer": answer,
         "question": question, "options": options}
        for name in names
        for question, options, answer in zip(QUESTIONS, OPTIONS, "DA", strict=True)
    ]  # fmt: skip


def _write_published(folder: Path) -> None:
    for split in ("dev", "test"):
        for level in ("middle", "high"):
            for number in (10, 2):
                path = folder / "RACE" / split / level / f"{number}.txt"
                write(path, _passage(f"{level}{number}.txt"))


def test_passages_are_in_the_order_of_their_numbers_and_both_levels_are_one_task(tmp_path):
    _write_published(tmp_path)
    found = read("race_middle", tmp_path)
    # By number: 2 before 10.
    names = ["middle2.txt.0", "middle2.txt.1", "middle10.txt.0", "middle10.txt.1"]
    assert (ids(found), labels(found)) == (names, [3, 0, 3, 0])
    first, second, third, _ = found.examples
    assert first.source == second.source != third.source
    for place in (tmp_path, tmp_path / "RACE"):
        both = read("race", place, "test").examples
        assert [example.id[0] for example in both] == list("mmmmhhhh")
        assert read("race_high", place, "test").examples == both[4:]


@pytest.mark.parametrize("between", ["", " \n\n"])
def test_joined_files_are_read_instead_of_those_that_they_join(tmp_path, between):
    _write_published(tmp_path)
    before = read("race_high", tmp_path).examples
    passages = [json.dumps(_passage(f"high{number}.txt")) for number in (2, 10)]
    joined = write(tmp_path / "RACE" / "dev" / "high" / "all.txt", between.join(passages))
    found = read("race_high", tmp_path)
    assert (found.paths, found.examples) == ((joined,), before)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_the_hubs_rows_are_the_same_examples(tmp_path, kind):
    _write_published(tmp_path / "official")
    official = {name: read(name, tmp_path / "official").examples for name in _NAMES}
    middle, high = ([f"{level}{n}.txt" for n in (2, 10)] for level in ("middle", "high"))
    for level, names in (("middle", middle), ("high", high), ("all", middle + high)):
        file = f"validation-00000-of-00001.{kind}"
        write(tmp_path / "race" / level / file, _flat(*names))
    found = {name: read(name, tmp_path) for name in _NAMES}
    assert {name: each.examples for name, each in found.items()} == official
    # The folder that joins both is read where there is no other.
    assert {path.parent.name for each in found.values() for path in each.paths} == {
        "middle",
        "high",
    }
    for level in ("middle", "high"):
        (tmp_path / "race" / level / file).unlink()
    assert {name: read(name, tmp_path).examples for name in _NAMES} == official


_NAMES = ("race_middle", "race_high", "race")


def test_the_level_is_that_of_the_files_name_or_of_the_ids(tmp_path):
    write(tmp_path / "race_dev_middle.jsonl", [_passage("1.txt")])
    assert ids(read("race_middle", tmp_path)) == ["1.txt.0", "1.txt.1"]
    # One level is not the whole of RACE.
    assert not find_files(TASKS["race_high"], tmp_path)
    assert not find_files(TASKS["race"], tmp_path)
    write(tmp_path / "dev.jsonl", [_passage("middle1.txt"), _passage("high1.txt")])
    assert ids(read("race_high", tmp_path)) == ["high1.txt.0", "high1.txt.1"]
    assert len(read("race", tmp_path).examples) == 4
    write(tmp_path / "race" / "dev.jsonl", [_passage("1.txt")])
    with pytest.raises(DataError, match="'1.txt' begins with neither of middle, high"):
        read("race_middle", tmp_path / "race")


def test_rows_of_a_passage_that_stand_apart_are_numbered_on(tmp_path):
    rows = _flat("high1.txt", "high2.txt")
    write(tmp_path / "race_dev_high.jsonl", [rows[index] for index in (0, 2, 1, 3)])
    names = ["high1.txt.0", "high2.txt.0", "high1.txt.1", "high2.txt.1"]
    assert ids(read("race_high", tmp_path)) == names


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"answers": ["A"]}, "1 has questions, options and answers of 2, 2 and 1"),
        ({"answers": ["A", "E"]}, "1: 'E'"),
        ({"options": ["A", "B"]}, "1: options[0]"),
    ],
)
def test_another_format_is_refused_with_its_place(tmp_path, change, place):
    write(tmp_path / "race_dev_high.jsonl", {**_passage("high1.txt"), **change})
    with pytest.raises(DataError) as refused:
        read("race_high", tmp_path)
    assert place in str(refused.value)


def test_an_unfinished_passage_is_refused_with_its_line(tmp_path):
    passage = json.dumps(_passage("high1.txt"))
    for text, place in ((f"{passage}\n{passage[:50]}", ":2"), ("[1]", ":1"), ("\n", " is empty")):
        write(tmp_path / "RACE" / "dev" / "high" / "all.txt", text)
        with pytest.raises(DataError, match=rf"all\.txt{place}"):
            read("race_high", tmp_path)
