"""Quotes in TSV: around fields where that fits all rows, text elsewhere."""

import pytest

from sublayer.tasks.own_table.quoted_tsv import read_own_tsv


def _read(path, text):
    path.write_text(text)
    read = read_own_tsv(path)
    return [tuple(record.values.values()) for record in read.records], read.note.partition(": ")[2]


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        # As pandas writes it, doubled quotes, tabs and line breaks within fields.
        ('"a ""b"""\t1\nc\t2\n', [('a "b"', "1"), ("c", "2")]),
        ('"a\tb"\t1\n', [("a\tb", "1")]),
        ('"a\nb"\t1\n', [("a\nb", "1")]),
        # As R does: every field.
        ('"a"\t"1"\n', [("a", "1")]),
    ],
)
def test_quotes_stand_around_fields_where_all_rows_are_whole_so(tmp_path, lines, rows):
    assert _read(tmp_path / "a.tsv", "x\ty\n" + lines) == (
        rows,
        "quotes stand around fields, as in CSV",
    )


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        ('"a" b\t1\n', [('"a" b', "1")]),
        ('"a\t1\nb\t2\n', [('"a', "1"), ("b", "2")]),
        # Two quotes that begin fields would join two lines to one.
        ('"a\t1\nb"\t2\n', [('"a', "1"), ('b"', "2")]),
    ],
)
def test_quotes_are_text_where_they_are_no_pairs_around_fields(tmp_path, lines, rows):
    assert _read(tmp_path / "a.tsv", "x\ty\n" + lines) == (rows, "quotes are text")


def test_nothing_is_said_of_quotes_within_fields(tmp_path):
    assert _read(tmp_path / "a.tsv", 'x\ty\na "b"\t1\n') == ([('a "b"', "1")], "")


def test_a_header_may_be_quoted_alone(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('"x"\t"y"\na\t1\n')
    (record,) = read_own_tsv(path).records
    assert record.values == {"x": "a", "y": "1"}
