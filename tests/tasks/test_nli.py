"""SNLI and SciTail, in every form in which they are published."""

import json

import pytest

from sublayer.errors import DataError
from sublayer.tasks.registry import TASKS, find_files, read_split

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


def _read(folder, name, split):
    task = TASKS[name]
    return read_split(task, split, find_files(task, folder)[split])


def _write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(rows))


def _shown(read):
    return [(*example.fields.values(), example.label) for example in read.examples]


@pytest.mark.parametrize("split", ["train", "test"])
def test_snli_is_read_from_its_tables(tmp_path, split):
    _write(tmp_path / "snli_1.0" / f"snli_1.0_{split}.txt", [_SNLI_HEADER, *_SNLI_ROWS])
    read = _read(tmp_path, "snli", split)
    # The last row lacks columns that nothing is read from.
    assert _shown(read) == [('A "man".', "B.", 1), ("A.", "D.", 2)]
    assert [example.id for example in read.examples] == ["1.jpg#4r1n", "1.jpg#4r1e"]
    assert read.skipped == {_NO_MAJORITY: 1}
    assert read.firsts[_NO_MAJORITY].endswith(f"snli_1.0_{split}.txt:3")


def test_a_row_of_snli_that_ends_before_its_texts_is_counted(tmp_path):
    _write(tmp_path / "snli_1.0_dev.txt", [_SNLI_HEADER, _SNLI_ROWS[0], "neutral\t( a )"])
    read = _read(tmp_path, "snli", "dev")
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
    _write(tmp_path / file, rows)
    read = _read(tmp_path, "snli", "test")
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
    _write(tmp_path / file, _SCITAIL[file])
    for folder in (tmp_path, (tmp_path / file).parent):
        read = _read(folder, "scitail", "dev")
        assert _shown(read) == [
            ('Pluto "rotates.', "Pluto rotates.", 0),
            ("Pluto rotates.", "It is far.", 1),
        ]
        assert not read.skipped


def test_a_label_of_another_set_is_refused(tmp_path):
    _write(tmp_path / "scitail" / "train.tsv", ["A.\tB.\tcontradiction"])
    with pytest.raises(DataError, match=r"train.tsv:1: 'contradiction' is no label of SciTail: "):
        _read(tmp_path, "scitail", "train")
