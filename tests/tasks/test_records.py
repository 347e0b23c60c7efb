"""Records of every kind of file, with their lines; what is none is refused with its place."""

import gzip
import json

import pytest

from sublayer.errors import DataError
from sublayer.tasks.records import read_records
from tests.tasks.files import write

ROWS = [{"text": 'a "quote", and more', "label": 1}, {"text": "two\nlines", "label": 0}]
LINES = "\r\n".join(map(json.dumps, ROWS))


def _read(path, content):
    return list(read_records(write(path, content)))


@pytest.mark.parametrize("name, content", [
    ("a.jsonl", f"\ufeff{LINES}\n\n"),
    ("a.jsonl.gz", gzip.compress(LINES.encode())),
    ("a.json", json.dumps(ROWS, indent=1)),
    ("a.parquet", ROWS),
])  # fmt: skip
def test_every_kind_of_file_has_the_same_rows(tmp_path, name, content):
    records = _read(tmp_path / name, content)
    assert [(record.line, record.values) for record in records] == [*enumerate(ROWS, 1)]


A_B = {"a": "1", "b": "2"}


@pytest.mark.parametrize("name, content, records", [
    ("a.csv", '\ufefftext,label\r\n"a ""quote""",1\r\n\r\n"two\nlines",0',
     [(2, {"text": 'a "quote"', "label": "1"}), (4, {"text": "two\nlines", "label": "0"})]),
    # A line break within a field does not shift the lines behind it.
    ("a.csv", 'a,b\n"1\n2\n3",x\n1,2\n', [(2, {"a": "1\n2\n3", "b": "x"}), (5, A_B)]),
    ("a.csv", "a; b\n1;2\n", [(2, A_B)]),
    # A quote of TSV is text.
    ("a.tsv", 'a\tb\r\n"x\t1\r\n\r\ny"\t2',
     [(2, {"a": '"x', "b": "1"}), (4, {"a": 'y"', "b": "2"})]),
])  # fmt: skip
def test_fields_are_divided_and_lines_counted(tmp_path, name, content, records):
    found = _read(tmp_path / name, content)
    assert [(record.line, dict(record.values)) for record in found] == records


@pytest.mark.parametrize("name, content, place", [
    ("a.jsonl", '{"a": 1}\n{"a": \n', "a.jsonl:2"),
    ("a.jsonl", '{"a": 1, "a": 2}\n', "a.jsonl:1"),
    ("a.jsonl", '{"a": NaN}\n', "a.jsonl:1"),
    ("a.jsonl", b'{"a": 1}\n\xff\n', "line 2: byte 0xff"),
    ("a.json", '[{"a": 1}, 2]', "a.json:2"),
    ("a.csv", 'a,b\n1,2\n"never ends,3\n4,5\n', "a.csv:3"),
    ("a.csv", "a,b\n1\r2,3\n", "a.csv:2"),
    ("a.parquet", b"PAR1", "a.parquet"), ("a.txt", "x", "a.txt"),
])  # fmt: skip
def test_a_damaged_file_is_refused_with_its_place(tmp_path, name, content, place):
    with pytest.raises(DataError) as caught:
        _read(tmp_path / name, content)
    assert place in str(caught.value)


def test_a_value_that_is_not_there_or_no_text_is_refused_with_its_place(tmp_path):
    (record,) = _read(tmp_path / "a.jsonl", '{"a": 1, "b": null}')
    with pytest.raises(DataError, match=r"a\.jsonl:1 has no c: it has a, b"):
        record.value("c")
    with pytest.raises(DataError, match=r"a\.jsonl:1: a is int, not a text"):
        record.text("a")
    with pytest.raises(DataError, match=r"a\.jsonl:1: b is null, not a text"):
        record.text("b")
