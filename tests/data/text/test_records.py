import gzip
import json
from pathlib import Path

import pytest
import zstandard

from sublayer.data.text import records
from sublayer.data.text.files import FileDocument
from sublayer.data.text.records import (
    ROWS_PER_DOCUMENT,
    blank_line_texts,
    extracted_articles,
    json_lines,
    parquet_rows,
    plain_lines,
    row_runs,
)
from sublayer.errors import DataError

ARTICLES = b"""<doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Anarchism">
Anarchism

Anarchism is a philosophy.

It is old.
</doc>
<doc id="13" url="https://en.wikipedia.org/wiki?curid=13" title="Redirect">
Redirect
</doc>

<doc id="14" revid="5" url="x" title="A &amp; B">
First of all.
</doc>
"""


def parquet(path: Path, table: dict[str, list[object]], **settings) -> Path:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    write_table(arrow.table(table), path, **settings)
    return path


def test_a_line_of_json_is_a_document_in_every_form(tmp_path):
    text = (
        b'\xef\xbb\xbf{"text": "one\\ntwo", "id": 1}\r\n\n'
        b'{"id": 2, "text": ""}\n{"text": "dr\\u00e9i \xc3\xa9"}'
    )
    (tmp_path / "a.jsonl").write_bytes(text)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(text))
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(text))
    for name in ("a.jsonl", "a.json.gz", "a.jsonl.zst"):
        found = list(json_lines(tmp_path / name, "text"))
        assert found == [(1, b"one\ntwo"), (3, b""), (4, "dr\u00e9i \u00e9".encode())]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            b'{"text" "a"}',
            r"line 2: not JSON \(Expecting ':' delimiter\); one JSON object a line is read",
        ),
        (b'["text"]', "line 2: not a JSON object"),
        (b"[" * 100_000, "line 2: JSON that is nested too deeply to be read"),
        (
            b'{"title": "a", "body": "b"}',
            "line 2: no field 'text': set data.text_field to title, body",
        ),
        (b"{}", "line 2: no field 'text': set data.text_field to a field; there are none"),
        (b'{"text": 3}', "line 2: field 'text' is int, not text"),
        (b'{"text": "\xff"}', "line 2: byte 0xff is not UTF-8"),
        (
            b'{"text": "\\ud800"}',
            r"line 2: '\\ud800' is half a surrogate pair, which is no character",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "fine"}\n' + line + b"\n")
    with pytest.raises(DataError, match=f"a.jsonl, {message}") as raised:
        list(json_lines(tmp_path / "a.jsonl", "text"))
    assert "\n" not in str(raised.value)


def test_a_row_of_parquet_is_a_document(tmp_path):
    path = parquet(
        tmp_path / "a.parquet",
        {"id": [1, 2, 3], "body": ["one", None, "zw\u00e9i"]},
        row_group_size=2,
    )
    assert list(parquet_rows(path, "body")) == [(1, b"one"), (2, b""), (3, "zw\u00e9i".encode())]
    with pytest.raises(
        DataError, match="a.parquet has no column 'text': set data.text_field to id, body"
    ):
        list(parquet_rows(path, "text"))
    with pytest.raises(DataError, match="a.parquet: column 'id' is int64, not text"):
        list(parquet_rows(path, "id"))


def test_a_null_text_is_a_document_without_text_in_every_form(tmp_path):
    path = parquet(tmp_path / "a.parquet", {"text": ["one", None], "none": [None, None]})
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": null}\n')
    assert (
        list(parquet_rows(path, "text"))
        == list(json_lines(tmp_path / "a.jsonl", "text"))
        == [(1, b"one"), (2, b"")]
    )
    assert list(parquet_rows(path, "none")) == [(1, b""), (2, b"")]


def test_every_column_of_text_is_read(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    texts = ["one", None, "zw\u00e9i", "one"]
    category = arrow.array(texts).dictionary_encode()
    columns = {
        "a": category,
        "b": category.cast(arrow.dictionary(arrow.int8(), arrow.large_string())),
    }
    columns |= {
        "c": arrow.array(texts, arrow.large_string()),
        "d": arrow.array(texts, arrow.string_view()),
    }
    path = parquet(tmp_path / "a.parquet", columns)
    for name in columns:
        assert [text for _, text in parquet_rows(path, name)] == [
            b"one",
            b"",
            "zw\u00e9i".encode(),
            b"one",
        ]


def test_two_columns_of_one_name_are_refused(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    column = arrow.array(["one"])
    write_table(
        arrow.table([column, column, column], names=["text", "text", "id"]), tmp_path / "a.parquet"
    )
    with pytest.raises(
        DataError, match="a.parquet has 2 columns 'text': rename all but one, or leave them out"
    ):
        list(parquet_rows(tmp_path / "a.parquet", "text"))
    assert list(parquet_rows(tmp_path / "a.parquet", "id")) == [(1, b"one")]


def test_text_of_parquet_that_is_not_utf8_is_named_with_its_row(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    column = arrow.array([b"one", b"t\xffwo"])
    bad = arrow.Array.from_buffers(arrow.string(), 2, column.buffers())
    path = parquet(tmp_path / "a.parquet", {"text": bad, "id": [1, 2]})
    with pytest.raises(
        DataError, match="a.parquet, row 2: byte 0xff is not UTF-8: mend or convert it"
    ):
        list(parquet_rows(path, "text"))


def test_a_damaged_parquet_file_is_named(tmp_path):
    pytest.importorskip("pyarrow")
    whole = parquet(tmp_path / "a.parquet", {"text": ["one"] * 100}).read_bytes()
    for content in (b"", b"plain", whole[:-10], whole[: len(whole) // 2]):
        (tmp_path / "b.parquet").write_bytes(content)
        with pytest.raises(DataError, match="b.parquet is not a whole Parquet file") as raised:
            list(parquet_rows(tmp_path / "b.parquet", "text"))
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_blank_lines_stand_between_documents(tmp_path, cache, line_end):
    text = b"\n \none\ntwo\n\t\n\nthr\xffee\n\n".replace(b"\n", line_end)
    (tmp_path / "a.txt").write_bytes(text)
    found = list(blank_line_texts(FileDocument(tmp_path / "a.txt", cache), is_clean=False))
    assert found == [
        (3, b"one\ntwo\n".replace(b"\n", line_end)),
        (7, b"thr\xffee\n".replace(b"\n", line_end)),
    ]


def test_a_clean_file_of_documents_has_no_licence(tmp_path, cache):
    start, end = (
        b"*** %s OF THE PROJECT GUTENBERG EBOOK A ***\n" % mark for mark in (b"START", b"END")
    )
    (tmp_path / "a.txt").write_bytes(b"Legal.\n\n" + start + b"one\n\ntwo\n" + end + b"\nLegal.")
    found = list(blank_line_texts(FileDocument(tmp_path / "a.txt", cache), is_clean=True))
    assert found == [(4, b"one\n"), (6, b"two\n")]


def test_articles_of_wikipedia_are_extracted_without_titles(tmp_path):
    (tmp_path / "wiki_00").write_bytes(ARTICLES)
    assert list(extracted_articles(tmp_path / "wiki_00")) == [
        (1, b"Anarchism is a philosophy.\n\nIt is old.\n"),
        (8, b""),
        (12, b"First of all.\n"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"words\n" + ARTICLES, "line 1: not within <doc ...> and </doc>"),
        (ARTICLES.replace(b"</doc>\n\n<doc", b"</doc>\nwords\n<doc"), "line 11: not within"),
        (ARTICLES[:-8], "line 12: an article begins that does not end"),
        (ARTICLES.replace(b"old", b"o\xff"), "line 1: byte 0xff|line 5: byte 0xff is not UTF-8"),
    ],
)
def test_other_text_among_articles_is_named(tmp_path, text, message):
    (tmp_path / "wiki_00").write_bytes(text)
    with pytest.raises(DataError, match=f"wiki_00, {message}"):
        list(extracted_articles(tmp_path / "wiki_00"))


def test_rows_that_are_sentences_are_joined_to_documents(tmp_path):
    n = ROWS_PER_DOCUMENT
    (tmp_path / "a.txt").write_bytes(
        b"".join(b"row  %d .\n\n" % number for number in range(2 * n + 1))
    )
    found = list(row_runs(plain_lines(tmp_path / "a.txt")))
    assert [line for line, _ in found] == [1, 2 * n + 1, 4 * n + 1]
    assert [text.count(b"\n") for _, text in found] == [n, n, 1]
    assert found[2][1] == b"row %d .\n" % (2 * n)
    assert list(row_runs([(1, b"one\ntwo"), (2, b" "), (3, b"three")])) == [
        (1, b"one two\nthree\n")
    ]
    assert list(row_runs([])) == []


def test_json_is_read_as_python_reads_it(tmp_path):
    texts = ["\u2028 \x85 \x1c", 'quote " \\ /', "\U0001f600", "\t"]
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    )
    assert [text.decode() for _, text in json_lines(tmp_path / "a.jsonl", "text")] == texts


def test_a_document_that_does_not_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_LONGEST_DOCUMENT", 20)
    path = tmp_path / "a.txt"
    path.write_bytes(b"short\n\n12345678\n12345678\n1234\n")
    file = FileDocument(path, tmp_path)
    with pytest.raises(DataError, match=r"a.txt, document at line 3: longer than 0 MiB without a"):
        list(records.blank_line_texts(file, is_clean=False))


@pytest.mark.parametrize("block", [1, 2, 3, 7, 100])
def test_lines_are_divided_alike_wherever_a_block_ends(tmp_path, monkeypatch, block):
    monkeypatch.setattr(records, "_BLOCK_BYTES", block)
    text = b"a\r\nb\rc\n\n\r\nlong line\x0bd\x1ce\r\r\nf"
    path = tmp_path / "a.txt"
    path.write_bytes(text)
    for start, stop in ((0, len(text)), (1, 9), (2, 3), (5, 5)):
        found = list(records._lines(FileDocument(path, tmp_path).read(), start, stop))
        assert found == text[start:stop].splitlines(keepends=True)
