"""Files of GLUE and SuperGLUE, as published and as the hub's copies have them."""

import copy
import gzip

import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Answer
from sublayer.tasks.registry import TASKS, find_files
from tests.tasks.files import OFFICIAL, ids, labels, read, texts, write

_ASKED = "index\tsentence1\tsentence2\n0\tA.\tB.\n"
PAIRS = "index\tsentence1\tsentence2\tlabel"


def test_parts_of_a_split_are_read_in_order_and_a_missing_one_is_named(tmp_path):
    paths = [write(tmp_path / f"sst2/train-{n:05d}-of-00003.parquet",
                   [{"sentence": str(n), "label": 1}]) for n in range(3)]  # fmt: skip
    found = read("sst2", tmp_path, "train")
    assert (texts(found), ids(found)) == ([["0"], ["1"], ["2"]], ["0", "1", "2"])
    paths[1].unlink()
    with pytest.raises(DataError, match=r"has 2 of the 3 files .*: number 1 is missing"):
        read("sst2", tmp_path, "train")


def test_a_score_in_single_precision_is_the_published_one_and_a_text_of_null_counted(tmp_path):
    row = {"sentence1": "A.", "sentence2": "B.", "label": 3.799999952316284, "idx": 0}
    write(tmp_path / "stsb" / "train.jsonl", [row, {**row, "sentence1": None}])
    found = read("stsb", tmp_path, "train")
    assert (labels(found), found.skipped) == ([3.8], {"no text (null)": 1})


@pytest.mark.parametrize("name, asked", [("stsb", "test"), ("mnli", "test_mismatched")])
def test_rows_without_a_label_are_counted_in_training_and_kept_in_test(tmp_path, name, asked):
    rows = [dict.fromkeys(TASKS[name].fields, str(n)) | {"label": 1 - 2 * n} for n in range(2)]
    for split in ("train", asked):
        write(tmp_path / name / f"{split}.jsonl", rows)
    found, reason = read(name, tmp_path, "train"), "no label (-1 or empty)"
    assert (len(found.examples), found.skipped) == (1, {reason: 1})
    assert found.firsts[reason].endswith("train.jsonl:2")
    found = read(name, tmp_path, asked)
    known = [(example.is_labelled, example.label is None) for example in found.examples]
    assert (known, found.skipped) == ([(True, False), (False, True)], {})


@pytest.mark.parametrize("name, file, lines, first", [
    ("cola", "CoLA/test.tsv", "index\tsentence\n0\tfine\n", ["fine"]),
    ("ax", "glue/AX.tsv", _ASKED, ["A.", "B."]),
    ("ax", "glue/MNLI/diagnostic.tsv", _ASKED, ["A.", "B."]),
])  # fmt: skip
def test_test_files_have_no_label(tmp_path, name, file, lines, first):
    write(tmp_path / file, lines)
    found = read(name, tmp_path, "test")
    assert (texts(found), labels(found), ids(found)) == ([first], [None], ["0"])
    assert not found.examples[0].is_labelled


def test_the_original_of_mrpc_is_divided_by_its_ids(tmp_path):
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    lines = ['1\t1\t2\t"A" b\tB a\r\n', "0\t3\t4\tC\tD\r\n", "1\t5\t6\tE\tF\r\n"]
    write(tmp_path / "MRPC/msr_paraphrase_train.txt", "".join([header, *lines]))
    write(tmp_path / "MRPC/msr_paraphrase_test.txt", header + lines[1])
    # Without ids there is no development set.
    assert list(find_files(TASKS["mrpc"], tmp_path)) == ["train", "test"]
    assert len(read("mrpc", tmp_path, "train").examples) == 3
    write(tmp_path / "MRPC/mrpc_dev_ids.tsv", "3\t4\n9\t9\n")
    assert texts(read("mrpc", tmp_path, "train")) == [['"A" b', "B a"], ["E", "F"]]
    dev, reason = read("mrpc", tmp_path), "a pair of ids that the training file lacks"
    assert (texts(dev), labels(dev), dev.skipped) == ([["C", "D"]], [0], {reason: 1})
    assert dev.firsts[reason].endswith("dev_ids.tsv:2")
    assert len(read("mrpc", tmp_path, "test").examples) == 1
    write(tmp_path / "MRPC/mrpc_dev_ids.tsv", "3\t4\t5\n")
    with pytest.raises(DataError, match=r"mrpc_dev_ids.tsv:1: '3 4 5' is no pair of ids"):
        read("mrpc", tmp_path)


@pytest.mark.parametrize(
    "lines", ["sentence\tlabel\nHe left.\t1\n", "source\tlabel\tmark\tsentence\nx\t1\t\tHe left.\n"]
)
def test_cola_may_have_a_header_and_files_may_be_packed(tmp_path, lines):
    write(tmp_path / "CoLA" / "train.tsv.gz", gzip.compress(lines.encode()))
    found = read("cola", tmp_path, "train")
    assert (texts(found), labels(found)) == ([["He left."]], [1])


_SCORES = "sentence1\tsentence2\tscore\nA\tB\t"


@pytest.mark.parametrize("name, file, content, place", [
    ("sst2", "SST-2/dev.tsv", "index\tsentence\n0\tfine\n", r"column label"),
    ("sst2", "SST-2/dev.tsv", "sentence\tlabel\nfine\t1\nso so\t2\n", r"dev.tsv:3: '2'"),
    ("cola", "CoLA/dev.tsv", "gj04\tyes\t\tHe left.\n", r"dev.tsv:1: 'yes'"),
    ("stsb", "STS-B/dev.tsv", f"{_SCORES}5.2\n", r":2: '5.2'"),
    ("sst2", "SST-2/dev.tsv", b"sentence\tlabel\n\xff\t1\n", r"dev.tsv:2: byte 0xff"),
    ("sst2", "sst2/dev.jsonl", [{"sentence": "a", "label": True}], r"l:1: .* SST-2"),
    ("sst2", "sst2/dev.jsonl", [{"sentence": 7, "label": 1}], "sentence is int, not a text"),
    ("sst2", "sst2/dev.jsonl", [{"sentence": "a", "label": 1}, {"text": "b", "label": 1}],
     r"dev.jsonl:2 has no sentence: it has text, label"),
])  # fmt: skip
def test_another_format_is_refused_with_its_place(tmp_path, name, file, content, place):
    write(tmp_path / file, content)
    with pytest.raises(DataError, match=place):
        read(name, tmp_path)


@pytest.mark.parametrize("place", ["RTE", "my texts"])
def test_a_folder_of_another_task_is_not_taken_for_the_task(tmp_path, place):
    path = write(tmp_path / place / "dev.tsv", f"{PAIRS}\n0\tA.\tB.\tentailment\n")
    found = {task for task in TASKS if find_files(TASKS[task], path.parent)}
    # In a folder of no task's name, files are judged by their columns.
    assert "rte" in found and not found & {"sst2", "cola", "qqp", "qnli", "mrpc"}
    assert place != "RTE" or "wnli" not in found


NAMES = ("boolq", "cb", "copa", "multirc", "record", "sg_rte", "wic", "wsc", "axb", "axg")
FOLDERS = dict(zip(NAMES, OFFICIAL, strict=True))


def _read_rows(folder, name, content, split="dev"):
    write(folder / FOLDERS[name] / f"{split}.jsonl", content)
    return read(name, folder, split)


@pytest.mark.parametrize("word, sentence, start, end, stands", [
    ("go", "It Went on.", 3, 7, True), ("go", "It was.", 3, 6, False),
    ("rise", "It arose.", 4, 8, False),
])  # fmt: skip
def test_a_place_of_wic_without_its_word_is_counted(tmp_path, word, sentence, start, end, stands):
    row = {"word": word, "sentence1": sentence, "start1": start, "end1": end, "sentence2": ""}
    found = _read_rows(tmp_path, "wic", [{**row, "idx": 0, "label": True}])
    reason = "a place in a sentence where its word does not stand"
    assert (len(found.examples), found.kept) == (1, {} if stands else {reason: 1})


_PLACE = {"paragraph": 0, "question": 0, "answer": 0}
FLAT = {
    "boolq": {"question": "Q", "passage": "P", "idx": 0, "label": -1},
    "multirc": {"paragraph": "P", "question": "Q", "answer": "A", "label": -1, "idx": _PLACE},
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


@pytest.mark.parametrize("text, spans, found, n_repaired", [
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
])  # fmt: skip
def test_a_span_of_wsc_is_written_as_in_its_text(tmp_path, text, spans, found, n_repaired):
    split = _wsc(tmp_path, text, spans)
    (example,) = split.examples
    for span, expected in zip(("span1", "span2"), found, strict=True):
        assert (example.fields[f"{span}_text"], example.extra[f"{span}_index"]) == expected
    assert split.repaired.total() == n_repaired


def test_a_span_that_its_text_does_not_have_is_left_out_and_counted(tmp_path):
    text, reason = "Lev Kamenev and Grigory Zinoviev joined him .", "a noun that is not in its text"
    nouns = [("Kamenev and Zinoviev", 1), ("him", 6)]
    train, dev = (_wsc(tmp_path, text, nouns, split) for split in ("train", "dev"))
    assert (train.examples, train.skipped) == ([], {reason: 1})
    assert train.firsts[reason].endswith("train.jsonl:1")
    assert dev.examples[0].fields["span1_text"] == "Kamenev and Zinoviev"
    assert dev.kept == {reason: 1}
    for split in ("train", "dev"):
        found = _wsc(tmp_path, text, [("Lev", 0), ("her", 6)], split)
        assert found.skipped == {"a pronoun that is not in its text": 1}


def test_queries_of_record_that_cannot_be_learned_are_counted(tmp_path):
    content = copy.deepcopy(OFFICIAL["ReCoRD"])
    content[0]["qas"][0]["answers"] = [{"start": 6, "end": 8, "text": "Ann"}]
    content[0]["qas"][1]["answers"] = []
    reason = "an answer that is none of the entities"
    train = _read_rows(tmp_path, "record", content, "train")
    assert (train.examples, train.skipped) == ([], {reason: 1, "no label (-1 or empty)": 1})
    dev = _read_rows(tmp_path, "record", content)
    assert (labels(dev), dev.examples[0].answers) == ([None], (Answer("Ann"),))
    assert dev.kept == {reason: 1}
    content[0]["passage"]["entities"] = []
    found = _read_rows(tmp_path, "record", content)
    assert found.skipped == {"no entities to choose from": 2}


def test_rows_are_numbered_and_duplicates_are_counted(tmp_path):
    first, second = copy.deepcopy(OFFICIAL["CB"])
    found = _read_rows(tmp_path, "cb", [first, {**second, "idx": 0}, first])
    assert ids(found) == ["0", f"0 at {tmp_path}/CB/dev.jsonl:2"]
    assert found.skipped == {"the same row again": 1}
    del first["idx"], second["idx"]
    assert ids(_read_rows(tmp_path, "cb", [first, second])) == ["0", "1"]


@pytest.mark.parametrize("name, change, place", [
    ("boolq", lambda rows: rows[1].update(label="yes"), "dev.jsonl:2: 'yes'"),
    ("cb", lambda rows: rows[1].pop("premise"), "dev.jsonl:2 has no premise"),
    ("copa", lambda rows: rows[0].update(label=2), "dev.jsonl:1: 2"),
    ("multirc", lambda rows: rows[0]["passage"]["questions"][0]["answers"].append("Bo"),
     "dev.jsonl:1: passage.questions[0].answers[2]"),
    ("record", lambda rows: rows[0]["passage"]["entities"][1].update(end=500),
     "dev.jsonl:1: passage.entities[1]"),
    ("wic", lambda rows: rows[0].update(version=1.0), "dev.jsonl:1 is of version 1.0"),
])  # fmt: skip
def test_another_format_of_superglue_is_refused_with_its_place(tmp_path, name, change, place):
    content = copy.deepcopy(OFFICIAL[FOLDERS[name]])
    change(content)
    with pytest.raises(DataError) as caught:
        _read_rows(tmp_path, name, content)
    assert place in str(caught.value)
