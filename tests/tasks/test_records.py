"""Records of every kind of file, with their lines; what is none is refused with its place."""

import gzip
import json

import pytest

from sublayer.errors import DataError
from sublayer.tasks.records import read_records

ROWS = [{"text": 'a "quote", and more', "label": 1}, {"text": "two\nlines", "label": 0}]


def _read(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return list(read_records(path))


def test_every_kind_of_file_has_the_same_rows(tmp_path):
    from pyarrow import Table
    from pyarrow.parquet import write_table

    lines = "\r\n".join(map(json.dumps, ROWS))
    csv = '\ufefftext,label\r\n"a ""quote"", and more",1\r\n\r\n"two\nlines",0'
    write_table(Table.from_pylist(ROWS), tmp_path / "a.parquet")
    parquet = list(read_records(tmp_path / "a.parquet"))
    found = {
        "jsonl": _read(tmp_path / "a.jsonl", f"\ufeff{lines}\n\n"),
        "gz": _read(tmp_path / "a.jsonl.gz", gzip.compress(lines.encode())),
        "list": _read(tmp_path / "a.json", json.dumps(ROWS, indent=1)),
        "parquet": parquet,
    }
    for kind, records in found.items():
        assert [record.values for record in records] == ROWS, kind
        assert [record.line for record in records] == [1, 2], kind
    records = _read(tmp_path / "a.csv", csv)
    assert [(record.text("text"), int(record.text("label"))) for record in records] == [
        (row["text"], row["label"]) for row in ROWS
    ]
    assert [record.line for record in records] == [2, 4]


def test_a_field_of_csv_with_a_line_break_does_not_shift_the_lines_behind_it(tmp_path):
    records = _read(tmp_path / "a.csv", 'a,b\n"1\n2\n3",x\n4,y\n')
    assert [(record.line, record.values["b"]) for record in records] == [(2, "x"), (5, "y")]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_is_divided_as_its_header_is(tmp_path, delimiter):
    text = f"a{delimiter} b\n1{delimiter}2\n"
    assert _read(tmp_path / "a.csv", text)[0].values == {"a": "1", "b": "2"}


def test_a_quote_of_tsv_is_text(tmp_path):
    records = _read(tmp_path / "a.tsv", 'a\tb\r\n"x\t1\r\n\r\ny"\t2')
    assert [record.values for record in records] == [{"a": '"x', "b": "1"}, {"a": 'y"', "b": "2"}]


@pytest.mark.parametrize("name, delimiter", [("a.csv", ","), ("a.tsv", "\t")])
def test_a_row_of_another_number_of_fields_says_so(tmp_path, name, delimiter):
    rows = ["a,b,c", "1,2", "1,2,3,4", "1,2,3"]
    records = _read(tmp_path / name, "\n".join(rows).replace(",", delimiter))
    problems = [record.problem for record in records]
    assert problems == ["fewer than 3 fields", "more than 3 fields", ""]


@pytest.mark.parametrize(
    "name, data, place",
    [
        ("a.jsonl", '{"a": 1}\n{"a": \n', "a.jsonl:2"),
        ("a.jsonl", '{"a": 1}\n[1]\n', "a.jsonl:2"),
        ("a.jsonl", '{"a": 1, "a": 2}\n', "a.jsonl:1"),
        ("a.jsonl", '{"a": NaN}\n', "a.jsonl:1"),
        ("a.jsonl", '{"a": ' + "[" * 70 + "]" * 70 + "}", "a.jsonl:1"),
        ("a.jsonl", b'{"a": 1}\n\xff\n', "line 2: byte 0xff"),
        ("a.json", '[{"a": 1}, 2]', "a.json:2"),
        ("a.csv", "", "a.csv is empty"),
        ("a.csv", "a,b,a\n1,2,3\n", "several columns 'a'"),
        ("a.csv", 'a,b\n1,2\n"never ends,3\n4,5\n', "a.csv:3"),
        ("a.csv", "a,b\n1\r2,3\n", "a.csv:2"),
        ("a.parquet", b"PAR1", "a.parquet"),
        ("a.txt", "x", "a.txt"),
    ],
)
def test_a_damaged_file_is_refused_with_its_place(tmp_path, name, data, place):
    with pytest.raises(DataError) as caught:
        _read(tmp_path / name, data)
    assert place in str(caught.value)


def test_a_value_that_is_not_there_or_no_text_is_refused_with_its_place(tmp_path):
    (record,) = _read(tmp_path / "a.jsonl", '{"a": 1, "b": null}')
    with pytest.raises(DataError, match=r"a\.jsonl:1 has no c: it has a, b"):
        record.value("c")
    with pytest.raises(DataError, match=r"a\.jsonl:1: a is int, not a text"):
        record.text("a")
    with pytest.raises(DataError, match=r"a\.jsonl:1: b is null, not a text"):
        record.text("b")
