"""SuperGLUE's files, as they are published and as the hub's copies have them."""

import copy

import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Answer
from sublayer.tasks.registry import TASKS, find_files
from tests.tasks.files import ids, labels, read, write
from tests.tasks.superglue_rows import OFFICIAL

NAMES = ("boolq", "cb", "copa", "multirc", "record", "sg_rte", "wic", "wsc", "axb", "axg")
FOLDERS = dict(zip(NAMES, OFFICIAL, strict=True))


def _read_rows(folder, name, content, split="dev"):
    write(folder / FOLDERS[name] / f"{split}.jsonl", content)
    return read(name, folder, split)


def _official(name):
    return copy.deepcopy(OFFICIAL[FOLDERS[name]])


@pytest.mark.parametrize(
    "word, sentence, start, end, stands",
    [
        ("go", "It Went on.", 3, 7, True),
        ("go", "It was.", 3, 6, False),
        ("rise", "It arose.", 4, 8, False),
    ],
)
def test_a_place_of_wic_where_its_word_does_not_stand_is_counted(
    tmp_path, word, sentence, start, end, stands
):
    row = {"word": word, "sentence1": sentence, "start1": start, "end1": end}
    found = _read_rows(tmp_path, "wic", [{**row, "sentence2": "", "idx": 0, "label": True}])
    assert len(found.examples) == 1
    reason = "a place in a sentence where its word does not stand"
    assert found.kept == ({} if stands else {reason: 1})


FLAT = {
    "boolq": {"question": "Q", "passage": "P", "idx": 0, "label": -1},
    "multirc": {"paragraph": "P", "question": "Q", "answer": "A", "label": -1,
                "idx": {"paragraph": 0, "question": 0, "answer": 0}},
    "record": {"passage": "P", "query": "Q", "entities": ["A"], "answers": [],
               "idx": {"passage": 0, "query": 0}},
}  # fmt: skip


@pytest.mark.parametrize("name", FLAT)
def test_rows_without_a_label_are_read_to_be_answered_only(tmp_path, name):
    (example,) = _read_rows(tmp_path, name, [FLAT[name]], "test").examples
    assert (example.label, example.is_labelled) == (None, False)
    found = _read_rows(tmp_path, name, [FLAT[name]], "train")
    assert (found.examples, found.skipped) == ([], {"no label (-1 or empty)": 1})


def test_the_rte_of_glue_is_not_that_of_superglue(tmp_path):
    write(tmp_path / "RTE" / "dev.tsv", "index\tsentence1\tsentence2\tlabel\n")
    assert not find_files(TASKS["sg_rte"], tmp_path)
    write(tmp_path / "RTE" / "train.jsonl", OFFICIAL["RTE"])
    assert not find_files(TASKS["rte"], tmp_path)


def _wsc(folder, text, spans, split="dev"):
    (first, place1), (second, place2) = spans
    target = {"span1_index": place1, "span1_text": first, "span2_index": place2}
    row = {"text": text, "idx": 0, "label": True, "target": {**target, "span2_text": second}}
    return _read_rows(folder, "wsc", [row], split)


@pytest.mark.parametrize(
    "text, spans, found, n_repaired",
    [
        # Its text's first letter, a full stop, a line break: as TFDS's wsc.fixed has it.
        ("Up the hill it ran", [("The hill", 1), ("it", 3)], [("the hill", 1), ("it", 3)], 1),
        ("The hill was high", [("the hill", 0), ("was", 2)], [("The hill", 0), ("was", 2)], 1),
        ("Ask Mr. Lee if he can", [("Mr. Lee.", 1), ("he", 4)], [("Mr. Lee", 1), ("he", 4)], 1),
        # The nearest place where its words stand.
        ("It might use it , but it was late", [("It", 0), ("it", 2)], [("It", 0), ("it", 3)], 1),
        # What stands there as it is written is kept, its full stop too.
        ("Ask Mr. Lee or go", [("Lee", 2), ("Mr.", 1)], [("Lee", 2), ("Mr.", 1)], 0),
        # Punctuation that sticks to a span is not its.
        ('"Good for him," said Bo.', [("Bo", 4), ("him", 2)], [("Bo", 4), ("him", 2)], 0),
    ],
)
def test_a_span_of_wsc_is_written_as_its_text_has_it_and_counted(
    tmp_path, text, spans, found, n_repaired
):
    split = _wsc(tmp_path, text, spans)
    (example,) = split.examples
    assert (example.fields["span1_text"], example.extra["span1_index"]) == found[0]
    assert (example.fields["span2_text"], example.extra["span2_index"]) == found[1]
    assert split.repaired.total() == n_repaired


def test_a_span_that_its_text_does_not_have_is_left_out_and_counted(tmp_path):
    text = "Lev Kamenev and Grigory Zinoviev joined him ."
    nouns = [("Kamenev and Zinoviev", 1), ("him", 6)]
    train = _wsc(tmp_path, text, nouns, "train")
    assert not train.examples
    assert train.skipped == {"a noun that is not in its text": 1}
    assert train.firsts["a noun that is not in its text"].endswith("train.jsonl:1")
    dev = _wsc(tmp_path, text, nouns)
    assert dev.examples[0].fields["span1_text"] == "Kamenev and Zinoviev"
    assert dev.kept == {"a noun that is not in its text": 1}
    for split in ("train", "dev"):
        found = _wsc(tmp_path, text, [("Lev", 0), ("her", 6)], split)
        assert found.skipped == {"a pronoun that is not in its text": 1}


def test_queries_of_record_that_cannot_be_learned_are_counted(tmp_path):
    content = _official("record")
    content[0]["qas"][0]["answers"] = [{"start": 6, "end": 8, "text": "Ann"}]
    content[0]["qas"][1]["answers"] = []
    reason = "an answer that is none of the entities"
    train = _read_rows(tmp_path, "record", content, "train")
    assert not train.examples
    assert train.skipped == {reason: 1, "no label (-1 or empty)": 1}
    dev = _read_rows(tmp_path, "record", content)
    assert (labels(dev), dev.examples[0].answers) == ([None], (Answer("Ann"),))
    assert dev.kept == {reason: 1}
    content[0]["passage"]["entities"] = []
    found = _read_rows(tmp_path, "record", content)
    assert found.skipped == {"no entities to choose from": 2}


def test_rows_are_numbered_and_duplicates_are_counted(tmp_path):
    first, second = _official("cb")
    found = _read_rows(tmp_path, "cb", [first, {**second, "idx": 0}, first])
    assert ids(found) == ["0", f"0 at {tmp_path}/CB/dev.jsonl:2"]
    assert found.skipped == {"the same row again": 1}
    del first["idx"], second["idx"]
    assert ids(_read_rows(tmp_path, "cb", [first, second])) == ["0", "1"]


@pytest.mark.parametrize(
    "name, change, place",
    [
        ("boolq", lambda rows: rows[1].update(label="yes"), "dev.jsonl:2: 'yes'"),
        ("cb", lambda rows: rows[1].pop("premise"), "dev.jsonl:2 has no premise"),
        ("copa", lambda rows: rows[0].update(label=2), "dev.jsonl:1: 2"),
        ("multirc", lambda rows: rows[0]["passage"]["questions"][0]["answers"].append("Bo"),
         "dev.jsonl:1: passage.questions[0].answers[2]"),
        ("record", lambda rows: rows[0]["passage"]["entities"][1].update(end=500),
         "dev.jsonl:1: passage.entities[1]"),
        ("wic", lambda rows: rows[0].update(version=1.0), "dev.jsonl:1 is of version 1.0"),
    ],
)  # fmt: skip
def test_another_format_is_refused_with_its_place(tmp_path, name, change, place):
    content = _official(name)
    change(content)
    with pytest.raises(DataError) as caught:
        _read_rows(tmp_path, name, content)
    assert place in str(caught.value)
