"""SQuAD's files, as published and as the hub flattens them."""

import json
from pathlib import Path

import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Answer
from sublayer.tasks.gold_spans import MOVED, NOT_FOUND, SPACED, place_answer
from sublayer.tasks.registry import TASKS, find_files, read_split
from sublayer.tasks.suites.squad import CONTRADICTORY, UNANSWERABLE

CONTEXT = "Caf\u00e9 \U0001f600: the Normans gave their name to Normandy."


def _question(id_: str, answers=(("Normans", 12),), **more):
    written = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": id_, "question": "Who gave a name?", "answers": written, **more}


def _nested(*questions, context=CONTEXT, title="Normans", version="1.1"):
    paragraphs = [{"context": context, "qas": list(questions)}]
    return {"version": version, "data": [{"title": title, "paragraphs": paragraphs}]}


def _flat(id_: str, texts=("Normans",), starts=(12,), context=CONTEXT):
    return {
        "id": id_,
        "title": "Normans",
        "context": context,
        "question": "Who gave a name?",
        "answers": {"text": list(texts), "answer_start": list(starts)},
    }


def _write(path: Path, content) -> Path:
    if path.suffix == ".jsonl":
        content = "\n".join(map(json.dumps, content))
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def _read(path: Path, content, name="squad", split="dev"):
    return read_split(TASKS[name], split, (_write(path, content),))


def test_places_count_characters_and_articles_are_sources(tmp_path):
    read = _read(tmp_path / "dev-v1.1.json", _nested(_question("q1", [("Normans", 12)] * 3)))
    (example,) = read.examples
    assert example.id == "q1"
    assert example.fields == {"context": CONTEXT, "question": "Who gave a name?"}
    assert example.answers == (Answer("Normans", 12),) * 3
    assert (example.source, example.is_labelled) == ("Normans", True)
    assert not read.skipped
    assert not read.repaired


@pytest.mark.parametrize("name", ["squad", "squad2"])
def test_the_hub_s_rows_are_the_same_examples(tmp_path, name):
    from pyarrow import Table
    from pyarrow.parquet import write_table

    rows = [_flat("q1"), _flat("q2", ("Normandy", "name"), (39, 31))]
    nested = _nested(_question("q1"), _question("q2", [("Normandy", 39), ("name", 31)]))
    examples = _read(tmp_path / "dev-v1.1.json", nested, name).examples
    assert [answer.start for answer in examples[1].answers] == [39, 31]
    write_table(Table.from_pylist(rows), tmp_path / "a.parquet")
    read = read_split(TASKS[name], "dev", (tmp_path / "a.parquet",))
    assert read.examples == examples
    assert _read(tmp_path / "a.jsonl", rows, name).examples == examples
    assert _read(tmp_path / "b.json", rows, name).examples == examples
    # As question-answering scripts take them.
    assert _read(tmp_path / "c.json", {"version": "1.1", "data": rows}, name).examples == examples
    assert _read(tmp_path / "d.json", json.dumps(nested, indent=2), name).examples == examples


def test_unanswerable_questions_are_labelled_and_have_no_answer_not_even_a_plausible_one(tmp_path):
    plausible = [{"text": "Normans", "answer_start": 12}]
    nested = _nested(
        _question("yes", is_impossible=False),
        _question("no", (), is_impossible=True, plausible_answers=plausible),
    )
    read = _read(tmp_path / "train-v2.0.json", nested, "squad2", "train")
    assert [example.answers for example in read.examples] == [(Answer("Normans", 12),), ()]
    assert all(example.is_labelled for example in read.examples)
    flat = _read(tmp_path / "a.jsonl", [_flat("no", (), ())], "squad2", "train")
    assert flat.examples[0].answers == ()
    assert flat.examples[0].is_labelled


def test_contradictory_questions_and_unanswerable_ones_of_squad_1_are_counted(tmp_path):
    read = _read(tmp_path / "a.json", _nested(_question("no", (), is_impossible=True)))
    assert read.examples == []
    assert read.skipped == {UNANSWERABLE: 1}
    assert read.firsts[UNANSWERABLE].endswith("a.json: data[0].paragraphs[0].qas[0]")
    both = _nested(_question("both", is_impossible=True))
    assert _read(tmp_path / "a.json", both, "squad2").skipped == {CONTRADICTORY: 1}


def test_a_question_without_answers_is_read_to_be_answered_only(tmp_path):
    question = {"id": "q", "question": "Who?"}
    for name in ("squad", "squad2"):
        read = _read(tmp_path / "a.json", _nested(question), name)
        assert read.skipped.total() == 1
        read = _read(tmp_path / "a.json", _nested(question), name, "test")
        assert [example.is_labelled for example in read.examples] == [False]


def test_answers_of_stripped_passages_are_moved_back(tmp_path):
    # The passage had two spaces before it, which its copy has not.
    rows = [_flat("q1", ("Normans",), (14,)), _flat("q2")]
    read = _read(tmp_path / "a.jsonl", rows, split="train")
    assert [example.answers for example in read.examples] == [(Answer("Normans", 12),)] * 2
    assert read.repaired == {MOVED: 1}


def test_an_answer_that_is_not_in_its_place_trains_nothing_and_is_scored_all_the_same(tmp_path):
    rows = [_flat("q1", ("Vikings",), (12,)), _flat("q2", ("Vikings", "Normans"), (12, 12))]
    read = _read(tmp_path / "a.jsonl", rows, split="train")
    assert [example.answers for example in read.examples] == [(Answer("Normans", 12),)]
    assert read.skipped == {NOT_FOUND: 1}
    read = _read(tmp_path / "a.jsonl", rows)
    assert [example.answers for example in read.examples] == [
        (Answer("Vikings"),),
        (Answer("Vikings"), Answer("Normans", 12)),
    ]
    assert read.kept == {NOT_FOUND: 2}


@pytest.mark.parametrize(
    ("passage", "text", "start", "placed"),
    [
        ("one two", "two", 4, ("two", 4, "")),
        # White space in the answer, but not in the passage; in the place, but not in the answer.
        ("one two", " two ", 4, ("two", 4, SPACED)),
        ("one\n two", "two", 3, ("two", 5, SPACED)),
        ("one two", "  two", 2, ("two", 4, SPACED)),
        ("one two", "two", 6, ("two", 4, MOVED)),
        # Two places fit, or none, or one that is too far, or behind.
        ("a a b", "a", 4, ("a", None, "")),
        ("two" + 20 * ".", "two", 20, ("two", None, "")),
        ("one two", "two", 1, ("two", None, "")),
        ("one two", " ", 4, (" ", None, "")),
        ("one two", "", 4, ("", None, "")),
        ("one two", "two", -3, ("two", None, "")),
    ],
)
def test_an_answer_has_a_place_or_none(passage, text, start, placed):
    found = place_answer(passage, text, start)
    assert (found.answer.text, found.answer.start, found.repair) == placed


def test_an_id_that_comes_twice_is_told_apart_and_counted(tmp_path):
    other = _question("q1", [("Normandy", 39)])
    read = _read(tmp_path / "a.json", _nested(_question("q1"), _question("q1"), other))
    assert len({example.id for example in read.examples}) == len(read.examples) == 2
    assert read.skipped.total() == 1
    assert read.repaired.total() == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"version": "1.1"}, "a.json has no data"),
        ({"data": []}, "a.json has no questions"),
        (
            {"data": [{"paragraphs": [{"context": "x", "qas": [{"id": "q", "answers": []}]}]}]},
            "a.json: data[0].paragraphs[0].qas[0] has no question",
        ),
        (_nested(_question("q", [("Normans", "12th")])), "qas[0].answers[0].answer_start"),
        ({"data": [_flat("q", ("Normans",), (12, 13))]}, "a.json: data[0].answers"),
    ],
)
def test_another_format_is_refused_with_its_place(tmp_path, content, message):
    with pytest.raises(DataError) as refused:
        _read(tmp_path / "a.json", content)
    assert message in str(refused.value)


def test_files_are_found_by_the_publisher_s_names_before_others(tmp_path):
    folder = tmp_path / "SQuAD"
    folder.mkdir()
    names = (
        *("train-v1.1.json", "dev-v1.1.json", "train-v2.0.json", "dev-v2.0.json"),
        *("my-dev.json", "predictions_dev.json", "README.md"),
    )
    for name in names:
        _write(folder / name, _nested(_question("q")))
    for place in (tmp_path, folder):
        found = find_files(TASKS["squad"], place)
        assert {split: paths[0].name for split, paths in found.items()} == {
            "train": "train-v1.1.json",
            "dev": "dev-v1.1.json",
        }
        found = find_files(TASKS["squad2"], place)
        assert {split: paths[0].name for split, paths in found.items()} == {
            "train": "train-v2.0.json",
            "dev": "dev-v2.0.json",
        }


@pytest.mark.parametrize(
    ("name", "version", "tasks"),
    [
        ("squad/squad_v1.1_dev_240_paragraphs.json", "", {"squad"}),
        ("squad/some_dev.json", "1.1", {"squad"}),
        ("some_dev.json", "v2.0", {"squad2"}),
        ("race/race_dev_middle.jsonl", "", set()),
        ("squad_v2/squad_v2/validation-00000-of-00001.parquet", "", {"squad2"}),
        ("squad/plain_text/validation-00000-of-00001.parquet", "", {"squad", "squad2"}),
        ("squad/dev2_of_20.json", "", {"squad", "squad2"}),
        ("squad/dev_train.json", "", set()),
        ("other/dev-v1.1.json", "", set()),
    ],
)
def test_the_version_is_that_of_the_name_or_of_the_file(tmp_path, name, version, tasks):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    # The version stands at the end, behind more than is read from the beginning.
    key = "article" if "race" in name else "paragraphs"
    content = {"data": [{key: "x" * 100_000}]}
    _write(path, json.dumps({**content, "version": version} if version else content))
    for place in (tmp_path, path.parent):
        found = {task for task in ("squad", "squad2") if find_files(TASKS[task], place)}
        if place == tmp_path or tasks:
            assert found == tasks


def test_shards_are_read_together_and_none_may_be_missing(tmp_path):
    folder = tmp_path / "squad"
    folder.mkdir()
    for number in range(2):
        rows = [_flat(f"q{number}")]
        _write(folder / f"train-0000{number}-of-00003.jsonl", rows)
    paths = find_files(TASKS["squad"], folder)["train"]
    assert len(paths) == 2
    with pytest.raises(DataError, match="number 2 is missing"):
        read_split(TASKS["squad"], "train", paths)


def test_every_answer_of_the_shared_piece_is_in_its_place(real_data):
    paths = find_files(TASKS["squad"], real_data)["dev"]
    read = read_split(TASKS["squad"], "dev", paths)
    assert len(read.examples) == 1190
    assert len({example.source for example in read.examples}) == 48
    assert not read.skipped
    assert not read.repaired
    assert not read.kept
    for example in read.examples:
        (answer,) = example.answers
        assert answer.start is not None
        stop = answer.start + len(answer.text)
        assert example.fields["context"][answer.start : stop] == answer.text
    assert not find_files(TASKS["squad2"], real_data)
