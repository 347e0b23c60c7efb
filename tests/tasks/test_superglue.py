"""SuperGLUE's files, as they are published and as the hub's copies have them."""

import copy
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Answer
from sublayer.tasks.registry import TASKS, find_files
from tests.breadth import rows
from tests.tasks.files import ids, labels, read, write
from tests.tasks.superglue_rows import BROWN, HUB, OFFICIAL, PASSAGE

NAMES = ("boolq", "cb", "copa", "multirc", "record", "sg_rte", "wic", "wsc", "axb", "axg")
FOLDERS = dict(zip(NAMES, OFFICIAL, strict=True))


def _read_rows(folder, name, content, split="dev"):
    write(folder / FOLDERS[name] / f"{split}.jsonl", content)
    return read(name, folder, split)


def _official(name):
    return copy.deepcopy(OFFICIAL[FOLDERS[name]])


def _published(folder, name):
    file = f"{FOLDERS[name]}.jsonl" if name in ("axb", "axg") else "val.jsonl"
    write(folder / FOLDERS[name] / file, OFFICIAL[FOLDERS[name]])
    return read(name, folder)


@pytest.mark.parametrize(
    "name, words",
    [
        ("boolq", ["True", "False"]),
        ("cb", ["neutral", "contradiction"]),
        ("multirc", ["True", "False", "False"]),
        ("sg_rte", ["entailment", "not_entailment"]),
        ("wic", ["False"]),
        ("wsc", ["True", "False"]),
        ("axb", ["not_entailment"]),
        ("axg", ["entailment", "entailment"]),
    ],
)
def test_every_class_is_read_as_published(tmp_path, name, words):
    found, task = _published(tmp_path, name), TASKS[name]
    assert [task.labels[label] for label in labels(found)] == words
    assert all(tuple(example.fields) == task.fields for example in found.examples)
    assert not found.skipped and not found.repaired


def test_copa_and_record_are_choices(tmp_path):
    copa, other = _published(tmp_path, "copa").examples
    assert copa.fields == {"premise": "It fell.", "question": "effect"}
    assert (copa.choices, copa.label, other.label) == (("It was pushed.", "It broke."), 1, 0)
    assert copa.source == other.source == "It fell."
    record, other = _published(tmp_path, "record").examples
    assert record.fields == {"passage": PASSAGE, "query": "@placeholder was warm"}
    # The ends of entities are the places of their last characters.
    assert record.choices == ("Ann Lee", "Bo Lee", "Rome")
    assert (record.label, record.answers, other.label) == (2, (Answer("Rome"),), 0)
    assert (record.id, record.source) == ("4.9", PASSAGE)
    assert other.extra == {"passage": 4, "query": 10}


def test_answers_of_multirc_positions_and_pairs_are_kept(tmp_path):
    multirc = _published(tmp_path, "multirc")
    paragraph = "<b>Sent 1: </b>Ann ran.<br>"
    fields = {"paragraph": paragraph, "question": "Who ran?", "answer": "Bo"}
    assert multirc.examples[1].fields == fields
    assert ids(multirc) == ["3.7.20", "3.7.21", "3.8.22"]
    assert [example.group for example in multirc.examples] == ["3.7", "3.7", "3.8"]
    assert {example.source for example in multirc.examples} == {paragraph}
    assert multirc.examples[2].extra == {"passage": 3, "question": 8, "answer": 22}
    (wic,) = _published(tmp_path, "wic").examples
    assert wic.extra == {"start1": 2, "end1": 7, "start2": 0, "end2": 7}
    wsc, other = _published(tmp_path, "wsc").examples
    assert wsc.fields == {"text": BROWN, "span1_text": "Mark", "span2_text": "his"}
    assert wsc.extra == {"span1_index": 0, "span2_index": 11}
    assert wsc.source == other.source == BROWN
    assert [example.group for example in _published(tmp_path, "axg").examples] == ["5", "5"]


@pytest.mark.parametrize(
    "word, sentence, start, end, stands",
    [
        ("go", "It Went on.", 3, 7, True),
        ("go", "It was.", 3, 6, False),
        ("rise", "It rose.", 3, 6, False),
        ("rise", "It arose.", 4, 8, False),
        ("rise", "It rose.", 90, 94, False),
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


FILES = [
    "{hub}/{split}-00000-of-00001.parquet",
    "super_glue/{hub}/{split}/0000.parquet",
    "superglue/{official}/{hub}_{split}.jsonl",
    "{official}/{split}.jsonl",
    "{hub}_{split}.jsonl",
    "anything/{split}.json",
]


@pytest.mark.parametrize(("name", "file"), rows(product(FOLDERS, FILES), 6))
def test_every_task_is_read_as_the_hub_has_it(tmp_path, name, file):
    folder = FOLDERS[name]
    hub = folder.lower().replace("-", "")
    split = "test" if name in ("axb", "axg") else "validation"
    path = write(tmp_path / file.format(hub=hub, official=folder, split=split), HUB[folder])
    found = read(name, path.parent if "anything" in file else tmp_path)
    published = _published(tmp_path / "published", name).examples
    if name == "axg":
        published = [replace(example, group="") for example in published]
    assert found.examples == published


def _without_labels(name):
    content = _official(name)
    for row in content:
        row.pop("label", None)
        for question in row.get("passage", {}).get("questions", []) if name == "multirc" else []:
            for answer in question["answers"]:
                del answer["label"]
        for query in row.get("qas", []):
            del query["answers"]
    return content


@pytest.mark.parametrize("name", ["boolq", "multirc", "record", "wsc"])
def test_the_test_set_has_no_labels_and_other_rows_without_one_are_counted(tmp_path, name):
    n_examples = len(_published(tmp_path, name).examples)
    flat = copy.deepcopy(HUB[FOLDERS[name]])
    for row in flat:
        row.update({"answers": []} if name == "record" else {"label": -1})
    for written in (_without_labels(name), flat):
        found = _read_rows(tmp_path, name, written, "test")
        assert labels(found) == [None] * n_examples
        assert not any(example.is_labelled for example in found.examples)
        found = _read_rows(tmp_path, name, written, "train")
        assert not found.examples
        assert found.skipped == {"no label (-1 or empty)": n_examples}


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
        ("The old man sat", [("The old\nman", 0), ("sat", 3)], [("The old man", 0), ("sat", 3)], 1),
        # The nearest place where its words stand.
        ("It might use it , but it was late", [("It", 0), ("it", 2)], [("It", 0), ("it", 3)], 1),
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
        ("cb", lambda rows: rows[0].update(idx="x"), "dev.jsonl:1: idx"),
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


def test_the_published_files_have_the_published_sizes_and_labels(real_data):
    def counts(name, split="dev"):
        found = read(name, real_data, split)
        assert not found.skipped and not found.kept
        return Counter((TASKS[name].labels or "ab")[label] for label in labels(found))

    assert counts("cb", "train") == {"entailment": 115, "contradiction": 119, "neutral": 16}
    assert counts("copa") == {"a": 55, "b": 45}
    assert counts("multirc") == {"True": 2075, "False": 2773}
    assert counts("wsc") == {"True": 38, "False": 66}
    wsc, multirc = read("wsc", real_data), read("multirc", real_data)
    assert len({example.source for example in wsc.examples}) == 41
    assert sorted(wsc.repaired.values()) == [1, 8]
    for example in wsc.examples:
        words = example.fields["text"].split(" ")[example.extra["span2_index"] :]
        assert " ".join(words).lstrip("\"'(").startswith(example.fields["span2_text"])
    assert len({example.group for example in multirc.examples}) == 953
    assert len({example.source for example in multirc.examples}) == 83
