"""Story Cloze, DPR, SNLI and SciTail as published and as the hub has them."""

import json

import pytest

from sublayer.errors import DataError
from sublayer.tasks.registry import TASKS, find_files
from tests.tasks.files import ids, labels, read, texts, write

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


def _write_cloze(path, lines):
    write(path, "\ufeff" + "\r\n".join(lines))


def _check_cloze(found):
    assert texts(found) == [['Rick grew up. He, too, left. Once. He said "no".'],
                            ["One. Two. Three. Four."]]  # fmt: skip
    assert found.examples[0].choices == ("He is happy.", "He joined a gang.")
    assert (labels(found), ids(found)) == ([0, 1], ["a1", "b2"])


@pytest.mark.parametrize(
    ("name", "header"), [(_WINTER, _HEADER), (f"story_cloze/{_VAL}", "a,b,c,d,e,f,g,h")]
)
def test_story_cloze_is_read_by_name_or_by_place(tmp_path, name, header):
    _write_cloze(tmp_path / name, [header, *_ROWS])
    _check_cloze(read("story_cloze", tmp_path))


def test_a_test_without_answers_has_no_labels(tmp_path):
    for name in (_TEST, _VAL):
        _write_cloze(tmp_path / name, [line.rpartition(",")[0] for line in [_HEADER, *_ROWS]])
    found = read("story_cloze", tmp_path, "test")
    assert [example.is_labelled for example in found.examples] == [False, False]
    found = read("story_cloze", tmp_path)
    assert (found.examples, found.skipped) == ([], {"no label (-1 or empty)": 2})


def test_a_short_row_and_a_row_that_is_there_twice_are_counted(tmp_path):
    _write_cloze(tmp_path / _VAL, [_HEADER, _ROWS[0], "c,short", _ROWS[1], _ROWS[1]])
    found = read("story_cloze", tmp_path)
    _check_cloze(found)
    assert found.skipped == {"fewer than 8 fields": 1, "the same row again": 1}
    assert found.firsts["the same row again"].endswith(":5")


_TWINS = [
    *("The bee landed on the flower because it had pollen.", "it", "The bee,the flower"),
    *("the flower", ""),
    *("The bee landed on the flower because it wanted pollen.", "it", "The bee,the flower"),
    *("The bee", ""),
]


def test_the_hubs_rows_of_dpr_are_read(tmp_path):
    row = {"sentence": _TWINS[0], "pronoun": "it", "candidates": ["The bee", "the flower"]}
    write(tmp_path / "definite_pronoun_resolution" / "train.jsonl", {**row, "label": 1})
    empty = write(tmp_path / "anything" / "test.jsonl", "")
    assert not find_files(TASKS["dpr"], empty.parent)
    (example,) = read("dpr", tmp_path, "train").examples
    assert (example.choices, example.label) == (("The bee", "the flower"), 1)


def test_capitals_that_differ_are_repaired_and_counted(tmp_path):
    write(tmp_path / "test.c.txt", "The bee saw it.\nit\nthe bee, the flower\nThe bee\n")
    found = read("dpr", tmp_path, "test")
    assert (labels(found), found.examples[0].choices) == ([0], ("the bee", "the flower"))
    assert found.repaired == {"an answer whose capitals are not the candidate's": 1}


@pytest.mark.parametrize(
    "block, reason",
    [
        (["A bee.", "it", "a,b"], "a block of another number of lines than 4"),
        (["A bit bee.", "it", "a,b", "a"], "a sentence without its pronoun"),
        (["See it.", "it", "a", "a"], "not two candidates, with a comma between them"),
        (["See it.", "it", "a,b", "c"], "an answer that is neither candidate"),
    ],
)
def test_a_block_without_meaning_is_counted_with_its_place(tmp_path, block, reason):
    write(tmp_path / "train.c.txt", "\n".join([*_TWINS, *block, ""]))
    found = read("dpr", tmp_path, "train")
    assert (len(found.examples), found.skipped) == (2, {reason: 1})
    assert found.firsts[reason].endswith("train.c.txt:11")


_SNLI_HEADER = (
    "gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\t"
    "sentence1\tsentence2\tcaptionID\tpairID\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5"
)
_SNLI_ROWS = [
    'neutral\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tA "man".\tB.\t1.jpg#4\t1.jpg#4r1n\tneutral\t\t\t\t',
    "-\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tA.\tC.\t1.jpg#4\t1.jpg#4r1c\tneutral\tentailment\t\t\t",
    "contradiction\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tA.\tD.\t1.jpg#4\t1.jpg#4r1e\tneutral",
    "neutral\t( a )",
]
_NO_MAJORITY = "no label that most annotators gave (-)"


@pytest.mark.parametrize("split", ["train", "test"])
def test_snli_is_read_from_its_tables(tmp_path, split):
    path = tmp_path / "snli_1.0" / f"snli_1.0_{split}.txt"
    write(path, "\n".join([_SNLI_HEADER, *_SNLI_ROWS]))
    found = read("snli", tmp_path, split)
    # The third row lacks columns that nothing is read from, the last its texts.
    assert texts(found) == [['A "man".', "B."], ["A.", "D."]]
    assert (labels(found), ids(found)) == ([1, 2], ["1.jpg#4r1n", "1.jpg#4r1e"])
    assert found.skipped == {_NO_MAJORITY: 1, "fewer than 14 fields": 1}
    assert found.firsts[_NO_MAJORITY].endswith(f"snli_1.0_{split}.txt:3")


_PLUTO = ['Pluto "rotates.\tPluto rotates.\tentails', "Pluto rotates.\tIt is far.\tneutral"]


def _scitail_json(entails, **more):
    rows = [
        ('Pluto "rotates.', "Pluto rotates.", entails),
        ("Pluto rotates.", "It is far.", "neutral"),
    ]
    names = ("sentence1", "sentence2", "gold_label")
    return [json.dumps({**dict(zip(names, row, strict=True)), **more}) for row in rows]


@pytest.mark.parametrize(
    ("file", "lines"),
    [
        ("SciTailV1.1/tsv_format/scitail_1.0_dev.tsv", _PLUTO),
        ("SciTailV1.1/snli_format/scitail_1.0_dev.txt",
         _scitail_json("entailment", annotator_labels=["neutral"])),
        ("SciTailV1.1/predictor_format/scitail_1.0_structure_dev.jsonl",
         _scitail_json("entails", sentence2_structure="Pluto<>rotates")),
    ],
)  # fmt: skip
def test_scitail_is_the_same_in_every_format(tmp_path, file, lines):
    path = write(tmp_path / file, "\n".join(lines))
    for folder in (tmp_path, path.parent):
        found = read("scitail", folder)
        first, second = ['Pluto "rotates.', "Pluto rotates."], ["Pluto rotates.", "It is far."]
        assert (texts(found), labels(found)) == ([first, second], [0, 1])
        assert not found.skipped


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("story_cloze", _TEST, _HEADER, "has no rows"),
        ("story_cloze", _TEST, f"{_HEADER}\n{_ROWS[1][:-1]}3", ":2: '3' is no right ending"),
        ("dpr", "test.c.txt", "\n", "c.txt has no rows of DPR"),
        ("dpr", "dpr/test.jsonl", [{"sentence": "it", "pronoun": "it", "candidates": ["a", "b"],
                                    "label": 2}], ":1: 2 is no label of DPR: 0 or 1"),
        ("scitail", "scitail/test.tsv", "A.\tB.\tcontradiction",
         "test.tsv:1: 'contradiction' is no label of SciTail: "),
    ],
)  # fmt: skip
def test_another_format_is_refused_with_its_place(tmp_path, name, file, content, message):
    path = write(tmp_path / file, content)
    with pytest.raises(DataError) as refused:
        read(name, path.parent, "test")
    assert message in str(refused.value)
