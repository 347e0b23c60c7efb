"""GLUE's files, read as they are published."""

from pathlib import Path

from sublayer.tasks.registry import TASKS, find_files, read_split


def _read(folder: Path, name: str, split: str, text: str):
    path = folder / {"cola": "CoLA", "sst2": "SST-2", "stsb": "STS-B", "rte": "RTE"}[name]
    path.mkdir(exist_ok=True)
    (path / f"{split}.tsv").write_bytes(text.encode())
    found = find_files(TASKS[name], folder)
    return read_split(TASKS[name], split, found[split])


def test_a_quote_is_text_and_crlf_and_a_missing_end_are_no_part_of_it(tmp_path):
    text = 'sentence\tlabel\r\n"never ends\t1\r\nit \'s fine"\t0'
    read = _read(tmp_path, "sst2", "dev", text)
    texts = [example.fields["sentence"] for example in read.examples]
    assert texts == ['"never ends', "it 's fine\""]
    assert [example.label for example in read.examples] == [1, 0]


def test_cola_has_no_header_but_in_its_test(tmp_path):
    read = _read(tmp_path, "cola", "train", "gj04\t1\t\tHe left.\ngj04\t0\t*\tLeft he.\n")
    assert [example.label for example in read.examples] == [1, 0]
    read = _read(tmp_path, "cola", "test", "index\tsentence\n0\tHe left.\n")
    assert read.examples[0].fields == {"sentence": "He left."}
    assert not read.examples[0].is_labelled


def test_columns_are_found_by_name(tmp_path):
    text = "label\tsentence2\tsentence1\tindex\nnot_entailment\tB\tA\t0\n"
    read = _read(tmp_path, "rte", "dev", text)
    assert read.examples[0].fields == {"sentence1": "A", "sentence2": "B"}
    assert read.examples[0].label == 1


def test_a_short_row_is_counted(tmp_path):
    read = _read(tmp_path, "sst2", "dev", "sentence\tlabel\nfine\nbad\t0\n")
    assert len(read.examples) == 1
    assert read.skipped == {"fewer than 2 fields": 1}
    assert read.firsts["fewer than 2 fields"].endswith("dev.tsv:2")
