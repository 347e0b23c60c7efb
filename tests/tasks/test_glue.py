"""GLUE's files, as they are published and as the hub's copies have them."""

import gzip
import json
from itertools import product

import pytest

from sublayer.errors import DataError
from sublayer.tasks.registry import TASKS, find_files, read_split
from tests.breadth import rows

_TSV = {
    "sst2": ("SST-2", "dev", "sentence\tlabel\nfine\t1\nbad \t0\n"),
    "cola": ("CoLA", "dev", "gj04\t1\t\tHe left.\ngj04\t0\t*\tLeft he.\n"),
    "mrpc": (
        "MRPC",
        "dev",
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tA b\tB a\n0\t7\t9\tA b\tC\n",
    ),
    "qqp": (
        "QQP",
        "dev",
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        "133273\t213221\t213222\tHow?\tHow so?\t1\n402555\t536040\t536041\tWhy?\tWho?\t0\n",
    ),
    "stsb": (
        "STS-B",
        "dev",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tmain-captions\tMSRvid\t2012test\t0000\tnone\tnone\tA.\tB.\t5.000\n"
        "1\tmain-captions\tMSRvid\t2012test\t0002\tnone\tnone\tC.\tD.\t0.0\n",
    ),
    "mnli": (
        "MNLI",
        "dev_matched",
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
        "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tlabel2\tlabel3\tlabel4\t"
        "label5\tgold_label\n"
        "0\t63735\t63735n\tslate\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tA.\tB.\tneutral\tentailment\t"
        "neutral\tneutral\tneutral\tneutral\n"
        "1\t91383\t91383c\tslate\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tA.\tC.\tcontradiction\t"
        "neutral\tneutral\tneutral\tneutral\tcontradiction\n",
    ),
    "qnli": (
        "QNLI",
        "dev",
        "index\tquestion\tsentence\tlabel\n0\tWho?\tHe.\tentailment\n1\tWho?\tNo.\tnot_entailment\n",
    ),
    "rte": (
        "RTE",
        "dev",
        "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tnot_entailment\n1\tA.\tC.\tentailment\n",
    ),
    "wnli": ("WNLI", "dev", "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\t0\n1\tA.\tC.\t1\n"),
    "ax": (
        "diagnostic",
        "dev",
        "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain\tPremise\t"
        "Hypothesis\tLabel\n\t\tNegation\t\tArtificial\tA.\tB.\tcontradiction\n"
        "\t\t\tWorld knowledge\tNews\tB.\tA.\tentailment\n",
    ),
}
_READ = {
    "sst2": ({"sentence": "fine"}, [1, 0]),
    "cola": ({"sentence": "He left."}, [1, 0]),
    "mrpc": ({"sentence1": "A b", "sentence2": "B a"}, [1, 0]),
    "qqp": ({"question1": "How?", "question2": "How so?"}, [1, 0]),
    "stsb": ({"sentence1": "A.", "sentence2": "B."}, [5.0, 0.0]),
    "mnli": ({"premise": "A.", "hypothesis": "B."}, [1, 2]),
    "qnli": ({"question": "Who?", "sentence": "He."}, [0, 1]),
    "rte": ({"sentence1": "A.", "sentence2": "B."}, [1, 0]),
    "wnli": ({"sentence1": "A.", "sentence2": "B."}, [0, 1]),
    "ax": ({"premise": "A.", "hypothesis": "B."}, [2, 0]),
}
"""Of each, the texts of the first row, and the labels as the hub's copies number them."""
_NAMES = {"ax": "diagnostic-full.tsv"}


def _write(folder, name, split, text):
    place, _, _ = _TSV[name]
    (folder / place).mkdir(parents=True, exist_ok=True)
    path = folder / place / f"{split}.tsv"
    path.write_bytes(text.encode())
    return path


def _read(folder, name, split):
    task = TASKS[name]
    return read_split(task, split, find_files(task, folder)[split])


def _read_text(folder, name, split, text):
    _write(folder, name, split, text)
    return _read(folder, name, split)


@pytest.mark.parametrize(
    "name, form", [*((name, "") for name in _TSV), ("cola", "crlf"), ("mrpc", "no end")]
)
def test_every_task_is_read_as_published(tmp_path, name, form):
    _, split, text = _TSV[name]
    text = text.replace("\n", "\r\n") if form == "crlf" else text
    text = text.removesuffix("\n") if form == "no end" else text
    path = _write(tmp_path, name, split, text)
    if name in _NAMES:
        path.rename(path.with_name(_NAMES[name]))
    read = _read(tmp_path, name, split)
    texts, labels = _READ[name]
    assert read.examples[0].fields == texts
    assert tuple(read.examples[0].fields) == TASKS[name].fields
    assert [example.label for example in read.examples] == labels
    assert all(example.is_labelled for example in read.examples)
    assert not read.skipped and not read.repaired


@pytest.mark.parametrize("name", ["mrpc", "mnli", "stsb"])
def test_columns_are_found_by_name_in_any_order(tmp_path, name):
    _, split, text = _TSV[name]
    rows = [line.split("\t")[::-1] for line in text.removeprefix("\ufeff").splitlines()]
    read = _read_text(tmp_path, name, split, "\n".join("\t".join(row) for row in rows))
    texts, labels = _READ[name]
    assert read.examples[0].fields == texts
    assert [example.label for example in read.examples] == labels


def _hub_rows(name):
    texts, labels = _READ[name]
    return [{**texts, "label": label, "idx": 10 + row} for row, label in enumerate(labels)]


FILES = [
    "{name}/validation{part}-00000-of-00001.parquet",
    "{name}/validation{part}/0000.parquet",
    "glue/{name}/data/validation{part}-00000-of-00001.parquet",
    "{name}/validation{part}.jsonl",
    "{name}/dev{part}.json",
    "{name}/val{part}.csv",
    "{name}_validation{part}.jsonl",
    "glue/{name}_dev{part}.csv",
    "glue/{name}/dev{part}.tsv",
]


@pytest.mark.parametrize(("name", "file"), rows(product(_TSV, FILES), 8))
def test_every_task_is_read_as_the_hub_has_it(tmp_path, name, file):
    from pyarrow import Table
    from pyarrow.parquet import write_table

    rows = _hub_rows(name)
    part = "_matched" if name == "mnli" else ""
    path = tmp_path / file.format(name=name, part=part)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        write_table(Table.from_pylist(rows), path)
    elif path.suffix in (".csv", ".tsv"):
        lines = [rows[0].keys(), *(map(str, row.values()) for row in rows)]
        join = {".csv": ",", ".tsv": "\t"}[path.suffix].join
        path.write_text("\n".join(map(join, lines)))
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    read = _read(tmp_path, name, f"dev{part}")
    texts, labels = _READ[name]
    assert read.examples[0].fields == texts
    assert [example.label for example in read.examples] == labels
    assert [example.id for example in read.examples] == ["10", "11"]


def test_parts_of_a_split_are_read_in_order_and_a_missing_one_is_named(tmp_path):
    from pyarrow import Table
    from pyarrow.parquet import write_table

    (tmp_path / "sst2").mkdir()
    paths = [tmp_path / "sst2" / f"train-{number:05d}-of-00003.parquet" for number in range(3)]
    for number, path in enumerate(paths):
        write_table(Table.from_pylist([{"sentence": str(number), "label": 1}]), path)
    read = _read(tmp_path, "sst2", "train")
    assert [example.fields["sentence"] for example in read.examples] == ["0", "1", "2"]
    assert [example.id for example in read.examples] == ["0", "1", "2"]
    paths[1].unlink()
    with pytest.raises(DataError, match=r"has 2 of the 3 files .*: number 1 is missing"):
        _read(tmp_path, "sst2", "train")


def test_a_score_kept_in_single_precision_is_the_published_one(tmp_path):
    row = {"sentence1": "A.", "sentence2": "B.", "label": 3.799999952316284, "idx": 0}
    (tmp_path / "stsb").mkdir()
    (tmp_path / "stsb" / "train.jsonl").write_text(json.dumps(row))
    assert _read(tmp_path, "stsb", "train").examples[0].label == 3.8


@pytest.mark.parametrize("name", ["stsb", "mnli", "ax"])
def test_what_has_no_label_is_counted_in_training_and_kept_in_test(tmp_path, name):
    rows = _hub_rows(name)
    rows[1]["label"] = -1.0 if name == "stsb" else -1
    (tmp_path / name).mkdir()
    splits = ["dev", "test"] if name == "ax" else ["train", "test"]
    test = "test_mismatched" if name == "mnli" else "test"
    for split in (splits[0], test):
        (tmp_path / name / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    read = _read(tmp_path, name, splits[0])
    assert len(read.examples) == 1
    assert read.skipped == {"no label (-1 or empty)": 1}
    assert read.firsts["no label (-1 or empty)"].endswith(f"{splits[0]}.jsonl:2")
    read = _read(tmp_path, name, test)
    assert [example.is_labelled for example in read.examples] == [True, False]
    assert read.examples[1].label is None
    assert not read.skipped


@pytest.mark.parametrize(
    "name, split, text, texts",
    [
        ("cola", "test", "index\tsentence\n0\tfine\n", ["fine"]),
        (
            "mrpc",
            "test",
            "\ufeffindex\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\tA.\tB.\n",
            ["A.", "B."],
        ),
        (
            "mnli",
            "test_mismatched",
            "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
            "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\n"
            "0\t31493\t31493\ttravel\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tA.\tB.\n",
            ["A.", "B."],
        ),
    ],
)
def test_test_files_have_no_label(tmp_path, name, split, text, texts):
    (example,) = _read_text(tmp_path, name, split, text).examples
    assert list(example.fields.values()) == texts
    assert not example.is_labelled and example.label is None
    assert example.id == "0"


@pytest.mark.parametrize("name", ["AX.tsv", "MNLI/diagnostic.tsv"])
def test_the_diagnostic_set_has_several_names(tmp_path, name):
    path = tmp_path / "glue" / name
    path.parent.mkdir(parents=True)
    path.write_text("index\tsentence1\tsentence2\n0\tA.\tB.\n")
    for folder in (tmp_path, tmp_path / "glue"):
        (example,) = _read(folder, "ax", "test").examples
        assert example.fields == {"premise": "A.", "hypothesis": "B."}
    assert TASKS["ax"].trained_as == "mnli"


def test_the_original_of_mrpc_is_divided_by_its_ids(tmp_path):
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    rows = ['1\t1\t2\t"A" b\tB a\r\n', "0\t3\t4\tC\tD\r\n", "1\t5\t6\tE\tF\r\n"]
    folder = tmp_path / "MRPC"
    folder.mkdir()
    (folder / "msr_paraphrase_train.txt").write_bytes("".join([header, *rows]).encode())
    (folder / "msr_paraphrase_test.txt").write_bytes((header + rows[1]).encode())
    files = find_files(TASKS["mrpc"], tmp_path)
    assert list(files) == ["train", "test"]  # without ids there is no development set
    assert len(_read(tmp_path, "mrpc", "train").examples) == 3
    (folder / "mrpc_dev_ids.tsv").write_text("3\t4\n9\t9\n")
    train, dev = _read(tmp_path, "mrpc", "train"), _read(tmp_path, "mrpc", "dev")
    assert [example.fields["sentence1"] for example in train.examples] == ['"A" b', "E"]
    assert [example.fields["sentence1"] for example in dev.examples] == ["C"]
    assert dev.examples[0].label == 0
    assert dev.skipped == {"a pair of ids that the training file lacks": 1}
    assert dev.firsts["a pair of ids that the training file lacks"].endswith("dev_ids.tsv:2")
    assert len(_read(tmp_path, "mrpc", "test").examples) == 1
    (folder / "mrpc_dev_ids.tsv").write_text("3\t4\t5\n")
    with pytest.raises(DataError, match=r"mrpc_dev_ids.tsv:1: '3 4 5' is no pair of ids"):
        _read(tmp_path, "mrpc", "dev")


@pytest.mark.parametrize("header", ["sentence\tlabel\n", "source\tlabel\tmark\tsentence\n"])
def test_cola_may_have_a_header(tmp_path, header):
    row = "He left.\t1\n" if header.startswith("sent") else "gj04\t1\t\tHe left.\n"
    (example,) = _read_text(tmp_path, "cola", "train", header + row).examples
    assert (example.fields["sentence"], example.label) == ("He left.", 1)


@pytest.mark.parametrize("name", ["sst2", "ax"])
def test_files_may_be_packed(tmp_path, name):
    _, split, text = _TSV[name]
    path = _write(tmp_path, name, split, text)
    packed = path.with_name(f"{_NAMES.get(name, path.name)}.gz")
    packed.write_bytes(gzip.compress(text.encode()))
    path.unlink()
    texts, labels = _READ[name]
    read = _read(tmp_path, name, split)
    assert read.examples[0].fields == texts
    assert [example.label for example in read.examples] == labels


def test_a_quote_is_text(tmp_path):
    text = 'sentence\tlabel\n"never ends\t1\nit \'s fine"\t0\n'
    read = _read_text(tmp_path, "sst2", "dev", text)
    texts = [example.fields["sentence"] for example in read.examples]
    assert texts == ['"never ends', "it 's fine\""]


def test_rows_of_another_number_of_fields_are_counted_with_the_first_place(tmp_path):
    text = "sentence\tlabel\nfine\nbad\t0\n\nx\t1\t1\ny\n"
    read = _read_text(tmp_path, "sst2", "dev", text)
    assert [example.fields["sentence"] for example in read.examples] == ["bad"]
    assert read.skipped == {"fewer than 2 fields": 2, "more than 2 fields": 1}
    assert read.firsts["fewer than 2 fields"].endswith("dev.tsv:2")
    assert read.firsts["more than 2 fields"].endswith("dev.tsv:5")
    # The number of a row does not depend on what was left out before it.
    assert read.examples[0].id == "1"


def test_a_row_that_is_there_twice_and_an_id_that_is_are_told_apart(tmp_path):
    rows = ["0\tA\tB\tentailment", "0\tA\tB\tentailment", "0\tC\tD\tentailment"]
    text = "\n".join(["index\tsentence1\tsentence2\tlabel", *rows])
    read = _read_text(tmp_path, "rte", "dev", text)
    assert [example.fields["sentence1"] for example in read.examples] == ["A", "C"]
    assert len({example.id for example in read.examples}) == 2
    assert read.skipped == {"the same row again": 1}
    (what,) = read.repaired
    assert what.startswith("an id that another row has")
    assert read.firsts[what].endswith("dev.tsv:4")


@pytest.mark.parametrize(
    "name, text, place",
    [
        ("sst2", "", r"dev.tsv is empty"),
        ("sst2", "sentence\tlabel\n", r"dev.tsv has no rows"),
        ("sst2", "sentence\tlabel\nfine\n", r"fewer than 2 fields"),
        ("sst2", "text\tlabel\nfine\t1\n", r"column sentence"),
        ("sst2", "index\tsentence\n0\tfine\n", r"column label"),
        ("sst2", "sentence\tlabel\nfine\t1\nso so\t2\n", r"dev.tsv:3: '2'"),
        ("cola", "gj04\tyes\t\tHe left.\n", r"dev.tsv:1: 'yes'"),
        ("stsb", "sentence1\tsentence2\tscore\nA\tB\t5.2\n", r":2: '5.2'"),
        ("stsb", "sentence1\tsentence2\tscore\nA\tB\tinf\n", r":2: 'inf'"),
        ("sst2", "sentence\tlabel\n\udcff\t1\n", r"dev.tsv:2: byte 0xff"),
    ],
)
def test_another_format_is_refused_with_its_place(tmp_path, name, text, place):
    path = _write(tmp_path, name, "dev", "")
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=place):
        _read(tmp_path, name, "dev")


@pytest.mark.parametrize("label", [True, [1], 0.5])
def test_a_label_of_json_that_is_none_is_refused(tmp_path, label):
    row = json.dumps({"sentence": "fine", "label": label})
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "train.jsonl").write_text(row)
    with pytest.raises(DataError, match=r"train.jsonl:1: .* SST-2"):
        _read(tmp_path, "sst2", "train")


def test_a_text_that_is_null_is_counted_and_another_value_is_refused(tmp_path):
    rows = [{"sentence": None, "label": 1}, {"sentence": "fine", "label": 1}]
    (tmp_path / "sst2").mkdir()
    path = tmp_path / "sst2" / "train.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert _read(tmp_path, "sst2", "train").skipped == {"no text (null)": 1}
    path.write_text(json.dumps({"sentence": 7, "label": 1}))
    with pytest.raises(DataError, match=r"train.jsonl:1: sentence is int, not a text"):
        _read(tmp_path, "sst2", "train")
    path.write_text('{"sentence": "a", "label": 1}\n{"text": "b", "label": 1}')
    with pytest.raises(DataError, match=r"train.jsonl:2 has no sentence: it has text, label"):
        _read(tmp_path, "sst2", "train")


def test_a_folder_of_another_task_is_not_taken_for_the_task(tmp_path):
    for place, name in [("RTE", "rte"), ("my texts", "rte")]:
        (tmp_path / place).mkdir()
        (tmp_path / place / "dev.tsv").write_text(_TSV[name][2])
        found = {task for task in TASKS if find_files(TASKS[task], tmp_path / place)}
        # In a folder of no task's name, files are judged by their columns.
        assert "rte" in found
        assert found & {"sst2", "cola", "qqp", "qnli", "mrpc"} == set()
    assert "wnli" not in {task for task in TASKS if find_files(TASKS[task], tmp_path / "RTE")}


_SIZES = {
    "cola": (8551, 1043, 1063),
    "sst2": (67349, 872, 1821),
    "stsb": (5749, 1500, 1379),
    "rte": (2490, 277, 3000),
}


@pytest.mark.parametrize("name", _SIZES)
def test_the_published_files_have_the_published_sizes(real_data, name):
    for split, size in zip(("train", "dev", "test"), _SIZES[name], strict=True):
        read = _read(real_data, name, split)
        assert len(read.examples) == size
        assert not read.skipped and not read.repaired
        assert all(example.is_labelled == (split != "test") for example in read.examples)
