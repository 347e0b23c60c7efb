"""SuperGLUE's files, as they are published and as the hub's copies have them."""

import copy
import json
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Answer
from sublayer.tasks.registry import SUITES, TASKS, find_files, read_split
from tests.breadth import rows
from tests.tasks.superglue_rows import BROWN, HUB, OFFICIAL, PASSAGE

FOLDERS = {
    "boolq": "BoolQ",
    "cb": "CB",
    "copa": "COPA",
    "multirc": "MultiRC",
    "record": "ReCoRD",
    "sg_rte": "RTE",
    "wic": "WiC",
    "wsc": "WSC",
    "axb": "AX-b",
    "axg": "AX-g",
}


def _write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)))


def _read(folder, name, split="dev"):
    return read_split(TASKS[name], split, find_files(TASKS[name], folder)[split])


def _read_rows(folder, name, rows, split="dev"):
    _write(folder / FOLDERS[name] / f"{split}.jsonl", rows)
    return _read(folder, name, split)


def _official(name):
    return copy.deepcopy(OFFICIAL[FOLDERS[name]])


def _published(folder, name):
    is_diagnostic = name in ("axb", "axg")
    file = f"{FOLDERS[name]}.jsonl" if is_diagnostic else "val.jsonl"
    _write(folder / FOLDERS[name] / file, OFFICIAL[FOLDERS[name]])
    return _read(folder, name)


def test_every_task_has_a_fixture():
    assert list(FOLDERS) == [task.name for task in SUITES["superglue"].tasks]
    assert list(FOLDERS.values()) == list(OFFICIAL) == list(HUB)


@pytest.mark.parametrize(
    "name, labels",
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
def test_every_class_is_read_as_published(tmp_path, name, labels):
    read = _published(tmp_path, name)
    task = TASKS[name]
    assert [task.labels[example.label] for example in read.examples] == labels
    assert all(tuple(example.fields) == task.fields for example in read.examples)
    assert not read.skipped and not read.repaired


def test_copa_is_a_choice_of_two_sentences(tmp_path):
    first, second = _published(tmp_path, "copa").examples
    assert first.fields == {"premise": "It fell.", "question": "effect"}
    assert first.choices == ("It was pushed.", "It broke.")
    assert (first.label, second.label) == (1, 0)
    assert first.source == second.source == "It fell."


def test_multirc_is_an_example_an_answer_and_scored_by_question(tmp_path):
    examples = _published(tmp_path, "multirc").examples
    assert examples[1].fields == {
        "paragraph": "<b>Sent 1: </b>Ann ran.<br>",
        "question": "Who ran?",
        "answer": "Bo",
    }
    assert [example.id for example in examples] == ["3.7.20", "3.7.21", "3.8.22"]
    assert [example.group for example in examples] == ["3.7", "3.7", "3.8"]
    assert {example.source for example in examples} == {"<b>Sent 1: </b>Ann ran.<br>"}
    assert examples[2].extra == {"passage": 3, "question": 8, "answer": 22}


def test_record_is_a_choice_of_the_entities_whose_ends_are_their_last_characters(tmp_path):
    first, second = _published(tmp_path, "record").examples
    assert first.fields == {"passage": PASSAGE, "query": "@placeholder was warm"}
    assert first.choices == ("Ann Lee", "Bo Lee", "Rome")
    assert (first.label, second.label) == (2, 0)
    assert first.answers == (Answer("Rome"),)
    assert (first.id, first.source) == ("4.9", PASSAGE)
    assert second.extra == {"passage": 4, "query": 10}


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
    row |= {"sentence2": "", "idx": 0, "label": True}
    read = _read_rows(tmp_path, "wic", [row])
    assert len(read.examples) == 1
    said = {} if stands else {"a place in a sentence where its word does not stand": 1}
    assert read.kept == said


def test_positions_and_groups_are_kept(tmp_path):
    (example,) = _published(tmp_path, "wic").examples
    assert example.extra == {"start1": 2, "end1": 7, "start2": 0, "end2": 7}
    first, second = _published(tmp_path, "wsc").examples
    assert first.fields == {"text": BROWN, "span1_text": "Mark", "span2_text": "his"}
    assert first.extra == {"span1_index": 0, "span2_index": 11}
    assert first.source == second.source == BROWN
    assert [example.group for example in _published(tmp_path, "axg").examples] == ["5", "5"]
    assert {TASKS[name].trained_as for name in ("axb", "axg")} == {"sg_rte"}


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
    from pyarrow import Table
    from pyarrow.parquet import write_table

    folder = FOLDERS[name]
    hub = folder.lower().replace("-", "")
    split = "test" if name in ("axb", "axg") else "validation"
    path = tmp_path / file.format(hub=hub, official=folder, split=split)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        write_table(Table.from_pylist(HUB[folder]), path)
    else:
        _write(path, HUB[folder])
    read = _read(path.parent if "anything" in file else tmp_path, name)
    published = _published(tmp_path / "published", name).examples
    if name == "axg":
        published = [replace(example, group="") for example in published]
    assert read.examples == published


def _without_labels(name):
    rows = _official(name)
    for row in rows:
        row.pop("label", None)
        for question in row.get("passage", {}).get("questions", []) if name == "multirc" else []:
            for answer in question["answers"]:
                del answer["label"]
        for query in row.get("qas", []):
            del query["answers"]
    return rows


@pytest.mark.parametrize("name", ["boolq", "multirc", "record", "wsc"])
def test_the_test_set_has_no_labels_and_other_rows_without_one_are_counted(tmp_path, name):
    n_examples = len(_published(tmp_path, name).examples)
    flat = copy.deepcopy(HUB[FOLDERS[name]])
    for row in flat:
        row.update({"answers": []} if name == "record" else {"label": -1})
    for written in (_without_labels(name), flat):
        read = _read_rows(tmp_path, name, written, "test")
        assert len(read.examples) == n_examples
        assert not any(example.is_labelled for example in read.examples)
        assert {example.label for example in read.examples} == {None}
        read = _read_rows(tmp_path, name, written, "train")
        assert not read.examples
        assert read.skipped == {"no label (-1 or empty)": n_examples}


def test_the_rte_of_glue_is_not_that_of_superglue(tmp_path):
    (tmp_path / "RTE").mkdir()
    (tmp_path / "RTE" / "dev.tsv").write_text("index\tsentence1\tsentence2\tlabel\n")
    assert not find_files(TASKS["sg_rte"], tmp_path)
    _write(tmp_path / "RTE" / "train.jsonl", OFFICIAL["RTE"])
    assert not find_files(TASKS["rte"], tmp_path)


def _wsc(folder, text, spans, split="dev"):
    (first, place1), (second, place2) = spans
    target = {"span1_index": place1, "span1_text": first, "span2_index": place2}
    rows = [{"text": text, "idx": 0, "label": True, "target": {**target, "span2_text": second}}]
    return _read_rows(folder, "wsc", rows, split)


@pytest.mark.parametrize(
    "text, spans, found",
    [
        # Its text's first letter, a full stop, a line break: as TFDS's wsc.fixed has it.
        ("Up the hill it ran", [("The hill", 1), ("it", 3)], [("the hill", 1), ("it", 3)]),
        ("The hill was high", [("the hill", 0), ("was", 2)], [("The hill", 0), ("was", 2)]),
        ("Ask Mr. Lee if he can", [("Mr. Lee.", 1), ("he", 4)], [("Mr. Lee", 1), ("he", 4)]),
        ("The old man sat", [("The old\nman", 0), ("sat", 3)], [("The old man", 0), ("sat", 3)]),
    ],
)
def test_a_span_of_wsc_is_written_as_its_text_has_it_and_counted(tmp_path, text, spans, found):
    read = _wsc(tmp_path, text, spans)
    (example,) = read.examples
    assert (example.fields["span1_text"], example.extra["span1_index"]) == found[0]
    assert (example.fields["span2_text"], example.extra["span2_index"]) == found[1]
    assert sum(read.repaired.values()) == 1


def test_a_place_of_wsc_where_another_word_stands_is_moved_to_the_nearest_and_counted(tmp_path):
    text = "It might use it , but it was late"
    read = _wsc(tmp_path, text, [("It", 0), ("it", 2)])
    assert read.examples[0].extra == {"span1_index": 0, "span2_index": 3}
    assert read.repaired == {
        "the place of a span: where its words stand, nearest to what was said": 1
    }


def test_punctuation_that_sticks_to_a_span_of_wsc_is_not_its(tmp_path):
    read = _wsc(tmp_path, '"Good for him," said Bo.', [("Bo", 4), ("him", 2)])
    assert read.examples[0].extra == {"span1_index": 4, "span2_index": 2}
    assert not read.repaired and not read.skipped


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
        read = _wsc(tmp_path, text, [("Lev", 0), ("her", 6)], split)
        assert read.skipped == {"a pronoun that is not in its text": 1}


def test_queries_of_record_that_cannot_be_learned_are_counted(tmp_path):
    rows = _official("record")
    rows[0]["qas"][0]["answers"] = [{"start": 6, "end": 8, "text": "Ann"}]
    rows[0]["qas"][1]["answers"] = []
    train = _read_rows(tmp_path, "record", rows, "train")
    assert not train.examples
    assert train.skipped == {
        "an answer that is none of the entities": 1,
        "no label (-1 or empty)": 1,
    }
    dev = _read_rows(tmp_path, "record", rows)
    assert [example.label for example in dev.examples] == [None]
    assert dev.examples[0].answers == (Answer("Ann"),)
    assert dev.kept == {"an answer that is none of the entities": 1}
    rows[0]["passage"]["entities"] = []
    assert _read_rows(tmp_path, "record", rows).skipped == {"no entities to choose from": 2}


def test_rows_are_numbered_and_duplicates_are_counted(tmp_path):
    first, second = _official("cb")
    read = _read_rows(tmp_path, "cb", [first, {**second, "idx": 0}, first])
    assert [example.id for example in read.examples] == ["0", f"0 at {tmp_path}/CB/dev.jsonl:2"]
    assert read.skipped == {"the same row again": 1}
    del first["idx"], second["idx"]
    examples = _read_rows(tmp_path, "cb", [first, second]).examples
    assert [example.id for example in examples] == ["0", "1"]


@pytest.mark.parametrize(
    "name, change, place",
    [
        ("boolq", lambda rows: rows[1].update(label="yes"), "dev.jsonl:2: 'yes'"),
        ("cb", lambda rows: rows[0].update(label=3), "dev.jsonl:1: 3"),
        ("cb", lambda rows: rows[1].pop("premise"), "dev.jsonl:2 has no premise"),
        ("cb", lambda rows: rows[0].update(idx="x"), "dev.jsonl:1: idx"),
        ("copa", lambda rows: rows[0].update(label=2), "dev.jsonl:1: 2"),
        (
            "multirc",
            lambda rows: rows[0]["passage"]["questions"][0]["answers"].append("Bo"),
            "dev.jsonl:1: passage.questions[0].answers[2]",
        ),
        (
            "record",
            lambda rows: rows[0]["passage"]["entities"][1].update(end=500),
            "dev.jsonl:1: passage.entities[1]",
        ),
        ("wic", lambda rows: rows[0].update(version=1.0), "dev.jsonl:1 is of version 1.0"),
    ],
)
def test_another_format_is_refused_with_its_place(tmp_path, name, change, place):
    rows = _official(name)
    change(rows)
    with pytest.raises(DataError) as caught:
        _read_rows(tmp_path, name, rows)
    assert place in str(caught.value)


def test_the_published_files_have_the_published_sizes_and_labels(real_data):
    def counts(name, split="dev"):
        read = _read(real_data, name, split)
        assert not read.skipped and not read.kept
        labels = TASKS[name].labels or ("first", "second")
        return Counter(labels[example.label] for example in read.examples)

    assert counts("cb", "train") == {"entailment": 115, "contradiction": 119, "neutral": 16}
    assert counts("copa") == {"first": 55, "second": 45}
    assert counts("boolq") == {"True": 2033, "False": 1237}
    assert counts("multirc") == {"True": 2075, "False": 2773}
    assert counts("wic") == {"True": 319, "False": 319}
    assert counts("wsc") == {"True": 38, "False": 66}
    test = _read(real_data, "copa", "test").examples
    assert len(test) == 500
    assert not any(example.is_labelled for example in test)


def test_the_published_wsc_and_multirc_have_their_texts_and_questions(real_data):
    wsc = _read(real_data, "wsc")
    assert len({example.source for example in wsc.examples}) == 41
    assert sorted(wsc.repaired.values()) == [1, 8]
    for example in wsc.examples:
        words = example.fields["text"].split(" ")[example.extra["span2_index"] :]
        assert " ".join(words).lstrip("\"'(").startswith(example.fields["span2_text"])
    multirc = _read(real_data, "multirc")
    assert len({example.group for example in multirc.examples}) == 953
    assert len({example.source for example in multirc.examples}) == 83
