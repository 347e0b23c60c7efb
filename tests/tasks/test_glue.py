"""GLUE's files, as they are published and as the hub's copies have them."""

import gzip

import pytest

from sublayer.errors import DataError
from sublayer.tasks.registry import TASKS, find_files
from tests.tasks.files import ids, labels, read, texts, write

_ASKED = "index\tsentence1\tsentence2\n0\tA.\tB.\n"
PAIRS = "index\tsentence1\tsentence2\tlabel"


def test_parts_of_a_split_are_read_in_order_and_a_missing_one_is_named(tmp_path):
    paths = [tmp_path / "sst2" / f"train-{number:05d}-of-00003.parquet" for number in range(3)]
    for number, path in enumerate(paths):
        write(path, [{"sentence": str(number), "label": 1}])
    found = read("sst2", tmp_path, "train")
    assert (texts(found), ids(found)) == ([["0"], ["1"], ["2"]], ["0", "1", "2"])
    paths[1].unlink()
    with pytest.raises(DataError, match=r"has 2 of the 3 files .*: number 1 is missing"):
        read("sst2", tmp_path, "train")


def test_a_score_kept_in_single_precision_is_the_published_one(tmp_path):
    row = {"sentence1": "A.", "sentence2": "B.", "label": 3.799999952316284, "idx": 0}
    write(tmp_path / "stsb" / "train.jsonl", [row])
    assert labels(read("stsb", tmp_path, "train")) == [3.8]


@pytest.mark.parametrize(
    ("name", "scored", "asked"), [("stsb", "train", "test"), ("mnli", "train", "test_mismatched")]
)
def test_rows_without_a_label_are_counted_in_training_and_kept_in_test(
    tmp_path, name, scored, asked
):
    rows = [dict.fromkeys(TASKS[name].fields, str(n)) for n in range(2)]
    content = [{**row, "label": label} for row, label in zip(rows, (1, -1), strict=True)]
    for split in (scored, asked):
        write(tmp_path / name / f"{split}.jsonl", content)
    found = read(name, tmp_path, scored)
    assert len(found.examples) == 1
    assert found.skipped == {"no label (-1 or empty)": 1}
    assert found.firsts["no label (-1 or empty)"].endswith(f"{scored}.jsonl:2")
    found = read(name, tmp_path, asked)
    assert [example.is_labelled for example in found.examples] == [True, False]
    assert found.examples[1].label is None
    assert not found.skipped


@pytest.mark.parametrize(
    ("name", "file", "lines", "first"),
    [
        ("cola", "CoLA/test.tsv", "index\tsentence\n0\tfine\n", ["fine"]),
        ("ax", "glue/AX.tsv", _ASKED, ["A.", "B."]),
        ("ax", "glue/MNLI/diagnostic.tsv", _ASKED, ["A.", "B."]),
    ],
)  # fmt: skip
def test_test_files_have_no_label(tmp_path, name, file, lines, first):
    write(tmp_path / file, lines)
    found = read(name, tmp_path, "test")
    assert (texts(found), labels(found), ids(found)) == ([first], [None], ["0"])
    assert not found.examples[0].is_labelled


def test_the_original_of_mrpc_is_divided_by_its_ids(tmp_path):
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    lines = ['1\t1\t2\t"A" b\tB a\r\n', "0\t3\t4\tC\tD\r\n", "1\t5\t6\tE\tF\r\n"]
    folder = tmp_path / "MRPC"
    write(folder / "msr_paraphrase_train.txt", "".join([header, *lines]))
    write(folder / "msr_paraphrase_test.txt", header + lines[1])
    # Without ids there is no development set.
    assert list(find_files(TASKS["mrpc"], tmp_path)) == ["train", "test"]
    assert len(read("mrpc", tmp_path, "train").examples) == 3
    write(folder / "mrpc_dev_ids.tsv", "3\t4\n9\t9\n")
    train, dev = read("mrpc", tmp_path, "train"), read("mrpc", tmp_path)
    assert texts(train) == [['"A" b', "B a"], ["E", "F"]]
    assert (texts(dev), labels(dev)) == ([["C", "D"]], [0])
    assert dev.skipped == {"a pair of ids that the training file lacks": 1}
    assert dev.firsts["a pair of ids that the training file lacks"].endswith("dev_ids.tsv:2")
    assert len(read("mrpc", tmp_path, "test").examples) == 1
    write(folder / "mrpc_dev_ids.tsv", "3\t4\t5\n")
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


@pytest.mark.parametrize(
    ("name", "file", "content", "place"),
    [
        ("sst2", "SST-2/dev.tsv", "index\tsentence\n0\tfine\n", r"column label"),
        ("sst2", "SST-2/dev.tsv", "sentence\tlabel\nfine\t1\nso so\t2\n", r"dev.tsv:3: '2'"),
        ("cola", "CoLA/dev.tsv", "gj04\tyes\t\tHe left.\n", r"dev.tsv:1: 'yes'"),
        ("stsb", "STS-B/dev.tsv", f"{_SCORES}5.2\n", r":2: '5.2'"),
        ("sst2", "SST-2/dev.tsv", b"sentence\tlabel\n\xff\t1\n", r"dev.tsv:2: byte 0xff"),
        ("sst2", "sst2/dev.jsonl", [{"sentence": "a", "label": True}], r"l:1: .* SST-2"),
        ("sst2", "sst2/dev.jsonl", [{"sentence": 7, "label": 1}], "sentence is int, not a text"),
        ("sst2", "sst2/dev.jsonl", [{"sentence": "a", "label": 1}, {"text": "b", "label": 1}],
         r"dev.jsonl:2 has no sentence: it has text, label"),
    ],
)  # fmt: skip
def test_another_format_is_refused_with_its_place(tmp_path, name, file, content, place):
    write(tmp_path / file, content)
    with pytest.raises(DataError, match=place):
        read(name, tmp_path)


def test_a_text_that_is_null_is_counted(tmp_path):
    write(tmp_path / "sst2" / "train.jsonl",
          [{"sentence": None, "label": 1}, {"sentence": "fine", "label": 1}])  # fmt: skip
    assert read("sst2", tmp_path, "train").skipped == {"no text (null)": 1}


@pytest.mark.parametrize("place", ["RTE", "my texts"])
def test_a_folder_of_another_task_is_not_taken_for_the_task(tmp_path, place):
    path = write(tmp_path / place / "dev.tsv", f"{PAIRS}\n0\tA.\tB.\tentailment\n")
    found = {task for task in TASKS if find_files(TASKS[task], path.parent)}
    # In a folder of no task's name, files are judged by their columns.
    assert "rte" in found
    assert found & {"sst2", "cola", "qqp", "qnli", "mrpc"} == set()
    assert place != "RTE" or "wnli" not in found
