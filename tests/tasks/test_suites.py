"""Story Cloze, DPR, SNLI and SciTail as published and as the hub has them."""

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


def _cloze_read(folder, split):
    task = TASKS["story_cloze"]
    return read_split(task, split, find_files(task, folder)[split])


def _cloze_write(path, lines):
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
    _cloze_write(tmp_path / name, [header, *_ROWS])
    _check(_cloze_read(tmp_path, "dev"))


def test_the_files_of_2016_are_taken_before_those_of_2018(tmp_path):
    for name in (_WINTER, _VAL, _TEST):
        _cloze_write(tmp_path / name, [_HEADER, *_ROWS])
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
    _check(_cloze_read(path.parent, "dev"))


def test_a_test_without_answers_has_no_labels(tmp_path):
    lines = [line.rpartition(",")[0] for line in [_HEADER, *_ROWS]]
    _cloze_write(tmp_path / _TEST, lines)
    read = _cloze_read(tmp_path, "test")
    assert [example.is_labelled for example in read.examples] == [False, False]
    _cloze_write(tmp_path / _VAL, lines)
    read = _cloze_read(tmp_path, "dev")
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
    _cloze_write(tmp_path / _VAL, lines)
    with pytest.raises(DataError, match=message):
        _cloze_read(tmp_path, "dev")


def test_a_short_row_and_a_row_that_is_there_twice_are_counted(tmp_path):
    _cloze_write(tmp_path / _VAL, [_HEADER, _ROWS[0], "c,short", _ROWS[1], _ROWS[1]])
    read = _cloze_read(tmp_path, "dev")
    _check(read)
    assert read.skipped == {"fewer than 8 fields": 1, "the same row again": 1}
    assert read.firsts["the same row again"].endswith(":5")


_TWINS = [
    *("The bee landed on the flower because it had pollen.", "it", "The bee,the flower"),
    *("the flower", ""),
    *("The bee landed on the flower because it wanted pollen.", "it", "The bee,the flower"),
    *("The bee", ""),
]


def _dpr_read(folder, split="train"):
    task = TASKS["dpr"]
    return read_split(task, split, find_files(task, folder)[split])


def _dpr_write(folder, lines, split="train", end="\n"):
    folder.mkdir(exist_ok=True)
    (folder / f"{split}.c.txt").write_bytes(end.join(lines).encode())
    return folder


@pytest.mark.parametrize(("end", "n_last"), [("\n", 0), ("\r\n", 1), ("\n", 3)])
def test_blocks_are_read(tmp_path, end, n_last):
    _dpr_write(tmp_path, [*_TWINS[:-1], *[""] * n_last], end=end)
    first, second = _dpr_read(tmp_path).examples
    assert first.fields == {"text": _TWINS[0], "pronoun": "it"}
    assert first.choices == ("The bee", "the flower")
    assert [first.label, second.label] == [1, 0]
    assert first.source == second.source != ""


@pytest.mark.parametrize("folder", ["DPR", "anything"])
def test_the_files_are_found_by_their_names(tmp_path, folder):
    place = _dpr_write(tmp_path / folder, _TWINS, "test")
    assert len(_dpr_read(place, "test").examples) == 2
    assert all(example.is_labelled for example in _dpr_read(place, "test").examples)
    if folder != "anything":
        assert len(_dpr_read(tmp_path, "test").examples) == 2


def test_the_hubs_rows_are_read(tmp_path):
    candidates = ["The bee", "the flower"]
    row = {"sentence": _TWINS[0], "pronoun": "it", "candidates": candidates, "label": 1}
    (tmp_path / "definite_pronoun_resolution").mkdir()
    path = tmp_path / "definite_pronoun_resolution" / "train.jsonl"
    path.write_text(json.dumps(row))
    (example,) = _dpr_read(tmp_path).examples
    assert (example.choices, example.label) == (("The bee", "the flower"), 1)
    path.write_text(json.dumps(row | {"label": 2}))
    with pytest.raises(DataError, match=r"train.jsonl:1: 2 is no label of DPR: 0 or 1"):
        _dpr_read(tmp_path)


def test_capitals_that_differ_are_repaired_and_counted(tmp_path):
    _dpr_write(tmp_path, ["The bee saw it.", "it", "the bee, the flower", "The bee", ""])
    read = _dpr_read(tmp_path)
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
    _dpr_write(tmp_path, [*_TWINS, *block, ""])
    read = _dpr_read(tmp_path)
    assert len(read.examples) == 2
    assert read.skipped == {reason: 1}
    assert read.firsts[reason].endswith(f"train.c.txt:{line}")


def test_a_file_without_a_block_is_refused(tmp_path):
    _dpr_write(tmp_path, ["", ""])
    with pytest.raises(DataError, match=r"train.c.txt has no rows of DPR"):
        _dpr_read(tmp_path)


_SNLI_HEADER = (
    "gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\t"
    "sentence1\tsentence2\tcaptionID\tpairID\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5"
)
_SNLI_ROWS = [
    'neutral\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tA "man".\tB.\t1.jpg#4\t1.jpg#4r1n\tneutral\t\t\t\t',
    "-\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tA.\tC.\t1.jpg#4\t1.jpg#4r1c\tneutral\tentailment\t\t\t",
    "contradiction\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tA.\tD.\t1.jpg#4\t1.jpg#4r1e\tneutral",
]
_NO_MAJORITY = "no label that most annotators gave (-)"


def _nli_read(folder, name, split):
    task = TASKS[name]
    return read_split(task, split, find_files(task, folder)[split])


def _nli_write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(rows))


def _shown(read):
    return [(*example.fields.values(), example.label) for example in read.examples]


@pytest.mark.parametrize("split", ["train", "test"])
def test_snli_is_read_from_its_tables(tmp_path, split):
    _nli_write(tmp_path / "snli_1.0" / f"snli_1.0_{split}.txt", [_SNLI_HEADER, *_SNLI_ROWS])
    read = _nli_read(tmp_path, "snli", split)
    # The last row lacks columns that nothing is read from.
    assert _shown(read) == [('A "man".', "B.", 1), ("A.", "D.", 2)]
    assert [example.id for example in read.examples] == ["1.jpg#4r1n", "1.jpg#4r1e"]
    assert read.skipped == {_NO_MAJORITY: 1}
    assert read.firsts[_NO_MAJORITY].endswith(f"snli_1.0_{split}.txt:3")


def test_a_row_of_snli_that_ends_before_its_texts_is_counted(tmp_path):
    _nli_write(tmp_path / "snli_1.0_dev.txt", [_SNLI_HEADER, _SNLI_ROWS[0], "neutral\t( a )"])
    read = _nli_read(tmp_path, "snli", "dev")
    assert len(read.examples) == 1
    assert read.skipped == {"fewer than 14 fields": 1}


@pytest.mark.parametrize(
    "file", ["snli_1.0/snli_1.0_test.jsonl", "snli_1.0_test.jsonl", "snli/plain_text/test.jsonl"]
)
def test_snli_is_read_from_json_lines_of_the_publisher_and_the_hub(tmp_path, file):
    labels = ["entailment", "-"] if "1.0" in file else [0, -1]
    first, second = ("sentence1", "sentence2") if "1.0" in file else ("premise", "hypothesis")
    label = "gold_label" if "1.0" in file else "label"
    rows = [json.dumps({first: "A.", second: "B.", label: each}) for each in labels]
    _nli_write(tmp_path / file, rows)
    read = _nli_read(tmp_path, "snli", "test")
    assert _shown(read) == [("A.", "B.", 0)]
    # Also in the test split, whose labels are published.
    assert read.skipped == {_NO_MAJORITY: 1}


_SCITAIL = {
    "SciTailV1.1/tsv_format/scitail_1.0_dev.tsv": [
        'Pluto "rotates.\tPluto rotates.\tentails',
        "Pluto rotates.\tIt is far.\tneutral",
    ],
    "SciTailV1.1/snli_format/scitail_1.0_dev.txt": [
        json.dumps({"sentence1": 'Pluto "rotates.', "sentence2": "Pluto rotates.",
                    "gold_label": "entailment", "annotator_labels": ["entailment"]}),
        json.dumps({"sentence1": "Pluto rotates.", "sentence2": "It is far.",
                    "gold_label": "neutral", "annotator_labels": ["neutral"]}),
    ],
    "SciTailV1.1/predictor_format/scitail_1.0_structure_dev.jsonl": [
        json.dumps({"sentence1": 'Pluto "rotates.', "sentence2": "Pluto rotates.",
                    "gold_label": "entails", "sentence2_structure": "Pluto<>rotates"}),
        json.dumps({"sentence1": "Pluto rotates.", "sentence2": "It is far.",
                    "gold_label": "neutral", "sentence2_structure": "It<>is"}),
    ],
    "scitail/dev.tsv": [
        "premise\thypothesis\tlabel",
        'Pluto "rotates.\tPluto rotates.\tentails',
        "Pluto rotates.\tIt is far.\tneutral",
    ],
}  # fmt: skip


@pytest.mark.parametrize("file", _SCITAIL)
def test_scitail_is_the_same_in_every_format(tmp_path, file):
    _nli_write(tmp_path / file, _SCITAIL[file])
    for folder in (tmp_path, (tmp_path / file).parent):
        read = _nli_read(folder, "scitail", "dev")
        assert _shown(read) == [
            ('Pluto "rotates.', "Pluto rotates.", 0),
            ("Pluto rotates.", "It is far.", 1),
        ]
        assert not read.skipped


def test_a_label_of_another_set_is_refused(tmp_path):
    _nli_write(tmp_path / "scitail" / "train.tsv", ["A.\tB.\tcontradiction"])
    with pytest.raises(DataError, match=r"train.tsv:1: 'contradiction' is no label of SciTail: "):
        _nli_read(tmp_path, "scitail", "train")
