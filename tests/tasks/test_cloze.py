"""Story Cloze, by the place of its columns and by their names."""

import json

import pytest

from sublayer.errors import DataError
from sublayer.tasks.registry import TASKS, find_files, read_split

_HEADER = (
    "InputStoryid,InputSentence1,InputSentence2,InputSentence3,InputSentence4,"
    "RandomFifthSentenceQuiz1,RandomFifthSentenceQuiz2,AnswerRightEnding"
)
_ROWS = [
    'a1,Rick grew up.,"He, too, left.",Once.,"He said ""no"".",He is happy.,He joined a gang.,1',
    "b2,One.,Two.,Three.,Four.,Bad.,Good.,2",
]
_VAL = "cloze_test_val__spring2016 - cloze_test_ALL_val.csv"
_TEST = "cloze_test_test__spring2016 - cloze_test_ALL_test.csv"
_WINTER = "cloze_test_val__winter2018-cloze_test_ALL_val - 1 - 1.csv"


def _read(folder, split):
    task = TASKS["story_cloze"]
    return read_split(task, split, find_files(task, folder)[split])


def _write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\ufeff" + "\r\n".join(lines))


def _check(read):
    first, second = read.examples
    assert first.fields == {"story": 'Rick grew up. He, too, left. Once. He said "no".'}
    assert first.choices == ("He is happy.", "He joined a gang.")
    assert [first.label, second.label] == [0, 1]
    assert [first.id, second.id] == ["a1", "b2"]


@pytest.mark.parametrize(
    ("name", "header"), [(_WINTER, _HEADER), (f"story_cloze/{_VAL}", "a,b,c,d,e,f,g,h")]
)
def test_the_published_files_are_read_by_name_or_by_place(tmp_path, name, header):
    _write(tmp_path / name, [header, *_ROWS])
    _check(_read(tmp_path, "dev"))


def test_the_files_of_2016_are_taken_before_those_of_2018(tmp_path):
    for name in (_WINTER, _VAL, _TEST):
        _write(tmp_path / name, [_HEADER, *_ROWS])
    found = find_files(TASKS["story_cloze"], tmp_path)
    assert {split: path.name for split, (path,) in found.items()} == {"dev": _VAL, "test": _TEST}


def test_the_hubs_columns_are_read_by_name(tmp_path):
    names = (
        *("story_id", "input_sentence_1", "input_sentence_2", "input_sentence_3"),
        *("input_sentence_4", "sentence_quiz1", "sentence_quiz2", "answer_right_ending"),
    )
    rows = [
        ("a1", "Rick grew up.", "He, too, left.", "Once.", 'He said "no".', "He is happy.",
         "He joined a gang.", 1),
        ("b2", "One.", "Two.", "Three.", "Four.", "Bad.", "Good.", 2),
    ]  # fmt: skip
    lines = [json.dumps(dict(reversed(list(zip(names, row, strict=True))))) for row in rows]
    path = tmp_path / "my stories" / "validation.jsonl"
    path.parent.mkdir()
    path.write_text("\n".join(lines))
    _check(_read(path.parent, "dev"))


def test_a_test_without_answers_has_no_labels(tmp_path):
    lines = [line.rpartition(",")[0] for line in [_HEADER, *_ROWS]]
    _write(tmp_path / _TEST, lines)
    read = _read(tmp_path, "test")
    assert [example.is_labelled for example in read.examples] == [False, False]
    _write(tmp_path / _VAL, lines)
    read = _read(tmp_path, "dev")
    assert not read.examples
    assert read.skipped == {"no label (-1 or empty)": 2}


@pytest.mark.parametrize(
    "lines, message",
    [
        ([_HEADER], "has no rows"),
        (["a,b,c", "1,2,3"], r"has 3 columns, a, b, c: Story Cloze has an id, four sentences"),
        ([_HEADER, _ROWS[1][:-1] + "3"], r"\.csv:2: '3' is no right ending of Story Cloze: 1 or 2"),
    ],
)
def test_what_is_no_such_table_is_refused(tmp_path, lines, message):
    _write(tmp_path / _VAL, lines)
    with pytest.raises(DataError, match=message):
        _read(tmp_path, "dev")


def test_a_short_row_and_a_row_that_is_there_twice_are_counted(tmp_path):
    _write(tmp_path / _VAL, [_HEADER, _ROWS[0], "c,short", _ROWS[1], _ROWS[1]])
    read = _read(tmp_path, "dev")
    _check(read)
    assert read.skipped == {"fewer than 8 fields": 1, "the same row again": 1}
    assert read.firsts["the same row again"].endswith(":5")
