"""RACE's files: a passage each, joined, as lines of JSON, and as the hub flattens them."""

import json
from pathlib import Path

import pytest

from sublayer.errors import DataError
from sublayer.tasks.registry import TASKS, find_files, read_split

OPTIONS = [["to eat", "to sleep", "to run", "to {swim}"], ["one", "two", "three", "four"]]
QUESTIONS = ["He went home   _  .", "How many?"]


def _passage(id_: str, answers=("D", "A")):
    return {
        "answers": list(answers),
        "options": OPTIONS,
        "questions": QUESTIONS,
        "article": f'The passage "{id_}".\nIt ends }} {{.',
        "id": id_,
    }


def _flat(*passages):
    return [
        {
            "example_id": passage["id"],
            "article": passage["article"],
            "answer": answer,
            "question": question,
            "options": options,
        }
        for passage in passages
        for question, options, answer in zip(
            passage["questions"], passage["options"], passage["answers"], strict=True
        )
    ]


def _write(path: Path, *rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)))


def _read(name: str, folder: Path, split: str = "dev"):
    return read_split(TASKS[name], split, find_files(TASKS[name], folder)[split])


def _write_published(folder: Path) -> None:
    for split in ("train", "dev", "test"):
        for level in ("middle", "high"):
            for number in (10, 2):
                id_ = f"{level}{number}.txt"
                _write(folder / "RACE" / split / level / f"{number}.txt", _passage(id_))


def test_a_question_of_the_publisher_s_files_is_an_example(tmp_path):
    _write_published(tmp_path)
    read = _read("race_middle", tmp_path)
    # By number: 2 before 10.
    names = ["middle2.txt.0", "middle2.txt.1", "middle10.txt.0", "middle10.txt.1"]
    assert [example.id for example in read.examples] == names
    first = read.examples[0]
    article = _passage("middle2.txt")["article"]
    assert first.fields == {"article": article, "question": QUESTIONS[0]}
    assert first.choices == tuple(OPTIONS[0])
    assert [example.label for example in read.examples] == [3, 0, 3, 0]
    assert first.source == read.examples[1].source != read.examples[2].source


def test_both_levels_are_one_task_too_and_the_test_is_labelled(tmp_path):
    _write_published(tmp_path)
    for place in (tmp_path, tmp_path / "RACE"):
        read = _read("race", place, "test")
        assert len(read.examples) == 8
        assert all(example.is_labelled for example in read.examples)
        levels = [example.id[0] for example in read.examples]
        assert levels == list("mmmmhhhh")
        high = _read("race_high", place, "test")
        assert high.examples == read.examples[4:]


@pytest.mark.parametrize("between", ["", " \n\n"])
def test_joined_files_are_read_instead_of_those_that_they_join(tmp_path, between):
    _write_published(tmp_path)
    before = _read("race_high", tmp_path).examples
    passages = [json.dumps(_passage(f"high{number}.txt")) for number in (2, 10)]
    joined = tmp_path / "RACE" / "dev" / "high" / "all.txt"
    joined.write_text(between.join(passages))
    read = _read("race_high", tmp_path)
    assert read.paths == (joined,)
    assert read.examples == before


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_the_hub_s_rows_are_the_same_examples(tmp_path, kind):
    from pyarrow import Table
    from pyarrow.parquet import write_table

    _write_published(tmp_path / "official")
    for folder, levels in (("middle", ["middle"]), ("high", ["high"]), ("all", ["middle", "high"])):
        rows = _flat(*(_passage(f"{level}{number}.txt") for level in levels for number in (2, 10)))
        path = tmp_path / "race" / folder / f"validation-00000-of-00001.{kind}"
        _write(path, *rows)
        if kind == "parquet":
            write_table(Table.from_pylist(rows), path)
    for name in ("race_middle", "race_high", "race"):
        read = _read(name, tmp_path)
        assert read.examples == _read(name, tmp_path / "official").examples
        # The folder that joins both is read where there is no other.
        assert all(path.parent.name != "all" for path in read.paths)
    for level in ("middle", "high"):
        next((tmp_path / "race" / level).iterdir()).unlink()
    for name in ("race_middle", "race_high", "race"):
        examples = _read(name, tmp_path).examples
        assert examples == _read(name, tmp_path / "official").examples


def test_the_level_is_that_of_the_file_s_name_or_of_the_ids(tmp_path):
    rows = [_passage("middle1.txt"), _passage("high1.txt")]
    _write(tmp_path / "race_dev_middle.jsonl", _passage("1.txt"))
    assert [example.id for example in _read("race_middle", tmp_path).examples] == [
        "1.txt.0",
        "1.txt.1",
    ]
    assert not find_files(TASKS["race_high"], tmp_path)
    # One level is not the whole of RACE.
    assert not find_files(TASKS["race"], tmp_path)
    _write(tmp_path / "dev.jsonl", *rows)
    ids = [example.id for example in _read("race_high", tmp_path).examples]
    assert ids == ["high1.txt.0", "high1.txt.1"]
    assert len(_read("race", tmp_path).examples) == 4


def test_rows_of_a_passage_that_stand_apart_are_numbered_on(tmp_path):
    rows = _flat(_passage("high1.txt"), _passage("high2.txt"))
    order = (0, 2, 1, 3)
    _write(tmp_path / "race_dev_high.jsonl", *[rows[index] for index in order])
    ids = [example.id for example in _read("race_high", tmp_path).examples]
    assert ids == ["high1.txt.0", "high2.txt.0", "high1.txt.1", "high2.txt.1"]


def test_questions_without_answers_are_read_to_be_answered_only(tmp_path):
    passage = _passage("high1.txt")
    del passage["answers"]
    _write(tmp_path / "race_dev_high.jsonl", passage)
    _write(tmp_path / "race_test_high.jsonl", passage)
    assert _read("race_high", tmp_path).skipped.total() == 2
    read = _read("race_high", tmp_path, "test")
    assert [(example.label, example.is_labelled) for example in read.examples] == [
        (None, False)
    ] * 2


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"answers": ["A"]}, "1 has questions, options and answers of 2, 2 and 1"),
        ({"answers": ["A", "E"]}, "1: 'E'"),
        ({"options": ["A", "B"]}, "1: options[0]"),
        ({"article": None}, "1 has no article"),
    ],
)
def test_another_format_is_refused_with_its_place(tmp_path, change, place):
    _write(tmp_path / "race_dev_high.jsonl", {**_passage("high1.txt"), **change})
    with pytest.raises(DataError) as refused:
        _read("race_high", tmp_path)
    assert place in str(refused.value)


def test_an_unfinished_passage_is_refused_with_its_line(tmp_path):
    path = tmp_path / "RACE" / "dev" / "high" / "all.txt"
    _write(path, _passage("high1.txt"))
    passage = path.read_text()
    for text, place in ((f"{passage}\n{passage[:50]}", ":2"), ("[1]", ":1"), ("\n", " is empty")):
        path.write_text(text)
        with pytest.raises(DataError, match=rf"all\.txt{place}"):
            _read("race_high", tmp_path)


def test_a_level_that_nothing_says_is_refused(tmp_path):
    _write(tmp_path / "race" / "dev.jsonl", _passage("1.txt"))
    assert len(_read("race", tmp_path).examples) == 2
    with pytest.raises(DataError, match="'1.txt' begins with neither of middle, high"):
        _read("race_middle", tmp_path)


def test_files_of_other_tasks_are_not_taken_for_race(tmp_path):
    _write(tmp_path / "dev.jsonl", {"premise": "x", "hypothesis": "y"})
    _write(tmp_path / "trace" / "dev.jsonl", _passage("high1.txt"))
    assert not find_files(TASKS["race"], tmp_path)


def test_the_shared_pieces_have_their_published_sizes(real_data):
    sizes = {"train": (11940, 3000), "dev": (1436, 368), "test": (1436, 362)}
    for split, (n_questions, n_passages) in sizes.items():
        read = _read("race_middle", real_data, split)
        assert len(read.examples) == n_questions
        assert len({example.source for example in read.examples}) == n_passages
        assert all(len(example.choices) == 4 for example in read.examples)
        assert not read.skipped
        assert not read.repaired
    assert not find_files(TASKS["race"], real_data)
