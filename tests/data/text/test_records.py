"""Files of many documents: their readers, and files in which anything is wrong."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

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
from sublayer.files.file_text import FileText
from sublayer.files.lines import read_lines, unpacked, zstd

ARTICLES = b"""<doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Anarchism">
Anarchism

Anarchism is a philosophy.

It is old.
</doc>
<doc id="13" url="x" title="Redirect">
Redirect
</doc>

<doc id="14" revid="5" url="x" title="A &amp; B">
First of all.
</doc>
"""


def parquet(path: Path, table: dict[str, Any], **settings: Any) -> Path:
    pytest.importorskip("pyarrow.parquet").write_table(
        pytest.importorskip("pyarrow").table(table), path, **settings
    )
    return path


def test_a_line_of_json_is_a_document(tmp_path):
    texts = ["one\ntwo", None, "", "dr\u00e9i \u2028 \x85 \x1c", 'quote " \\ /', "\U0001f600"]
    lines = [json.dumps({"id": 1, "text": text}, ensure_ascii=False) for text in texts]
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf\r\n" + "\r\n".join(lines).encode())
    expected = [(line, (text or "").encode()) for line, text in enumerate(texts, 2)]
    assert list(json_lines(tmp_path / "a.jsonl", "text")) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text" "a"}', r"not JSON \(Expecting ':' delimiter\)"),
        (b'["text"]', "not a JSON object"),
        (b'{"title": "a", "body": "b"}', "no field 'text': set data.text_field to title, body"),
        (b'{"text": 3}', "field 'text' is int, not text"),
        (b'{"text": "\\ud800"}', r"'\\ud800' is half a surrogate pair"),
    ],
)
def test_a_bad_line_of_json_is_refused(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "fine"}\n' + line + b"\n")
    with pytest.raises(DataError, match=f"a.jsonl, line 2: {message}"):
        list(json_lines(tmp_path / "a.jsonl", "text"))


def test_a_row_of_parquet_is_a_document_whatever_its_columns_type(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    texts = ["one", None, "zw\u00e9i"]
    category = arrow.array(texts).dictionary_encode()
    large = category.cast(arrow.dictionary(arrow.int8(), arrow.large_string()))
    columns = {"a": texts, "b": category, "c": large, "d": arrow.array(texts, arrow.string_view())}
    path = parquet(tmp_path / "a.parquet", columns | {"id": [1, 2, 3]}, row_group_size=2)
    for name in "abcd":
        rows = list(parquet_rows(path, name))
        assert rows == [(1, b"one"), (2, b""), (3, "zw\u00e9i".encode())]
    with pytest.raises(DataError, match="has no column 'text': set data.text_field to a, b"):
        list(parquet_rows(path, "text"))
    with pytest.raises(DataError, match="a.parquet: column 'id' is int64, not text"):
        list(parquet_rows(path, "id"))
    column = arrow.array([b"one", b"t\xffwo"])
    bad = arrow.Array.from_buffers(arrow.string(), 2, column.buffers())
    table = arrow.table([bad, bad, bad], names=["text", "text", "body"])
    pytest.importorskip("pyarrow.parquet").write_table(table, path)
    with pytest.raises(DataError, match="a.parquet has 2 columns 'text'"):
        list(parquet_rows(path, "text"))
    with pytest.raises(DataError, match="a.parquet, row 2: byte 0xff is not UTF-8"):
        list(parquet_rows(path, "body"))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="a.parquet is not a whole Parquet file"):
        list(parquet_rows(path, "text"))


def test_blank_lines_stand_between_documents(tmp_path):
    mark = b"*** %s OF THE PROJECT GUTENBERG EBOOK A ***\r\n"
    body = b" \r\none\r\ntwo\r\n\t\r\n\r\nthr\xffee\r\n\r\n"
    (tmp_path / "a.txt").write_bytes(mark % b"START" + body + mark % b"END" + b"\r\nLegal.\r\n")
    file = FileDocument(tmp_path / "a.txt", tmp_path)
    clean = list(blank_line_texts(file, is_clean=True))
    assert clean == [(3, b"one\r\ntwo\r\n"), (7, b"thr\xffee\r\n")]
    assert [line for line, _ in blank_line_texts(file, is_clean=False)] == [1, 3, 7, 9, 11]


def test_articles_of_wikipedia_are_extracted_without_titles(tmp_path):
    path = tmp_path / "wiki_00"
    path.write_bytes(ARTICLES)
    assert list(extracted_articles(path)) == [
        (1, b"Anarchism is a philosophy.\n\nIt is old.\n"),
        (8, b""),
        (12, b"First of all.\n"),
    ]
    for text, message in (
        (ARTICLES.replace(b"</doc>\n\n<doc", b"</doc>\nwords\n<doc"), "line 11: not within"),
        (ARTICLES[:-8], "line 12: an article begins that does not end"),
        (ARTICLES.replace(b"old", b"o\xff"), "line 1: byte 0xff is not UTF-8"),
    ):
        path.write_bytes(text)
        with pytest.raises(DataError, match=f"wiki_00, {message}"):
            list(extracted_articles(path))


def test_lines_and_documents_without_end_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_LONGEST_DOCUMENT", 20)
    monkeypatch.setattr("sublayer.files.lines._LONGEST_LINE", 25)
    path = tmp_path / "a.txt"
    path.write_bytes(b"short\n\n12345678\n12345678\n1234\n" + b" " * 25)
    with pytest.raises(DataError, match=r"a.txt, document at line 3: longer than 0 MiB without a"):
        list(blank_line_texts(FileDocument(path, tmp_path), is_clean=False))
    with pytest.raises(DataError, match=r"a.txt, line 6: longer than 0 MiB"):
        list(read_lines(path))


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("zst", zstd.compress)])
def test_a_large_compressed_file_is_bounded_and_unpacked_once(tmp_path, monkeypatch, suffix, pack):
    bomb, cache = tmp_path / f"bomb.{suffix}", tmp_path / "cache"
    bomb.write_bytes(pack(b" " * (6 << 20)))
    monkeypatch.setattr("sublayer.files.lines._most_bytes", lambda: 2 << 20)
    with pytest.raises(DataError, match=f"{bomb.name} becomes more than 0.0 GiB, half of the mem"):
        unpacked(bomb)
    with monkeypatch.context() as patch:
        patch.setattr("sublayer.files.lines._most_on_disk", lambda folder: 5 << 20)
        with pytest.raises(DataError, match=f"{bomb.name} becomes more than 0.0 GiB, half of what"):
            FileDocument(bomb, cache).read()
    assert not list(cache.rglob("unpacked/*"))
    text = FileDocument(bomb, cache).read()
    assert isinstance(text, FileText) and len(text) == 6 << 20
    [path] = (cache / "unpacked").iterdir()
    written = path.stat().st_mtime_ns
    assert FileDocument(bomb, cache).read()[:] == b" " * (6 << 20)
    assert path.stat().st_mtime_ns == written
