"""Files of many documents: their readers, and files in which anything is wrong."""

import gzip
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.corpora.albert_intrinsic import passages
from sublayer.data.parallel.files import Fields, json_pairs, parquet_pairs, tab_pairs
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
from tests.breadth import examples
from tests.data.hostile import altered, damaged

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
    (tmp_path / "a.jsonl.zst").write_bytes(zstd.compress(text))
    for name in ("a.jsonl", "a.json.gz", "a.jsonl.zst"):
        found = list(json_lines(tmp_path / name, "text"))
        assert found == [(1, b"one\ntwo"), (3, b""), (4, "dr\u00e9i \u00e9".encode())]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text" "a"}', r"not JSON \(Expecting ':' delimiter\)"),
        (b'["text"]', "not a JSON object"),
        (b"[" * 100_000, "JSON that is nested too deeply"),
        (b'{"title": "a", "body": "b"}', "no field 'text': set data.text_field to title, body"),
        (b"{}", "no field 'text': set data.text_field to a field; there are none"),
        (b'{"text": 3}', "field 'text' is int, not text"),
        (b'{"text": "\xff"}', "byte 0xff is not UTF-8"),
        (b'{"text": "\\ud800"}', r"'\\ud800' is half a surrogate pair"),
    ],
)
def test_a_bad_line_of_json_is_refused(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "fine"}\n' + line + b"\n")
    with pytest.raises(DataError, match=f"a.jsonl, line 2: {message}"):
        list(json_lines(tmp_path / "a.jsonl", "text"))


def test_json_is_read_as_python_reads_it(tmp_path):
    texts = ["\u2028 \x85 \x1c", 'quote " \\ /', "\U0001f600", "\t", ""]
    lines = [json.dumps({"text": text or None}, ensure_ascii=False) + "\n" for text in texts]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    assert [text.decode() for _, text in json_lines(tmp_path / "a.jsonl", "text")] == texts


def test_a_row_of_parquet_is_a_document_whatever_its_columns_type(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    texts = ["one", None, "zw\u00e9i"]
    category = arrow.array(texts).dictionary_encode()
    large = category.cast(arrow.dictionary(arrow.int8(), arrow.large_string()))
    columns = {"a": texts, "b": category, "c": large, "d": arrow.array(texts, arrow.string_view())}
    more = {"e": arrow.array(texts, arrow.large_string()), "id": [1, 2, 3], "none": [None] * 3}
    path = parquet(tmp_path / "a.parquet", columns | more, row_group_size=2)
    for name in "abcde":
        rows = list(parquet_rows(path, name))
        assert rows == [(1, b"one"), (2, b""), (3, "zw\u00e9i".encode())]
    assert [text for _, text in parquet_rows(path, "none")] == [b""] * 3
    with pytest.raises(DataError, match="has no column 'text': set data.text_field to a, b"):
        list(parquet_rows(path, "text"))
    with pytest.raises(DataError, match="a.parquet: column 'id' is int64, not text"):
        list(parquet_rows(path, "id"))


def test_bad_parquet_files_are_refused(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    path = tmp_path / "a.parquet"
    column = arrow.array([b"one", b"t\xffwo"])
    bad = arrow.Array.from_buffers(arrow.string(), 2, column.buffers())
    write_table(arrow.table([bad, bad, bad], names=["text", "text", "body"]), path)
    with pytest.raises(DataError, match="a.parquet has 2 columns 'text'"):
        list(parquet_rows(path, "text"))
    with pytest.raises(DataError, match="a.parquet, row 2: byte 0xff is not UTF-8"):
        list(parquet_rows(path, "body"))
    whole = path.read_bytes()
    for content in (b"", b"plain", whole[:-10], whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(DataError, match="a.parquet is not a whole Parquet file"):
            list(parquet_rows(path, "text"))


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
        (b"words\n" + ARTICLES, "line 1: not within"),
        (ARTICLES.replace(b"</doc>\n\n<doc", b"</doc>\nwords\n<doc"), "line 11: not within"),
        (ARTICLES[:-8], "line 12: an article begins that does not end"),
        (ARTICLES.replace(b"old", b"o\xff"), "line 1: byte 0xff is not UTF-8"),
    ],
)
def test_other_text_among_articles_is_refused(tmp_path, text, message):
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


def test_a_document_that_does_not_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_LONGEST_DOCUMENT", 20)
    path = tmp_path / "a.txt"
    path.write_bytes(b"short\n\n12345678\n12345678\n1234\n")
    file = FileDocument(path, tmp_path)
    with pytest.raises(DataError, match=r"a.txt, document at line 3: longer than 0 MiB without a"):
        list(records.blank_line_texts(file, is_clean=False))


@pytest.mark.parametrize(
    "block",
    [
        1,
        7,
        100,
    ],
)
def test_lines_are_divided_alike_wherever_a_block_ends(tmp_path, monkeypatch, block):
    monkeypatch.setattr(records, "_BLOCK_BYTES", block)
    text = b"a\r\nb\rc\n\n\r\nlong line\x0bd\x1ce\r\r\nf"
    path = tmp_path / "a.txt"
    path.write_bytes(text)
    for start, stop in ((0, len(text)), (1, 9), (2, 3), (5, 5)):
        found = list(records._lines(FileDocument(path, tmp_path).read(), start, stop))
        assert found == text[start:stop].splitlines(keepends=True)


Read = Callable[[Path], Iterable[Any]]

SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "A",
            "paragraphs": [{"context": "One.", "qas": []}, {"context": "Two.", "qas": []}],
        }
    ]
    * 2,
}

RACE = {"id": "high1.txt", "article": "Four is\na number.", "questions": ["?"], "options": [["a"]]}

RECORD = {"text": "one", "id": 3, "translation": {"en": "one", "de": "eins"}, "en": "a", "de": None}


def problem_of(read: Callable[[Path], Iterable[Any]], path: Path) -> str:
    try:
        for _ in read(path):
            pass
    except DataError as error:
        return str(error)
    return ""


def passages_of(path: Path) -> Iterable[Any]:
    return passages(FileDocument(path, path.parent))


def hostile_passages(random: Random) -> bytes:
    text = json.dumps(altered(random, random.choice((SQUAD, RACE)))).encode()
    return damaged(random, text) if random.random() < 0.2 else text


def hostile_lines(random: Random) -> bytes:
    text = "\n".join(json.dumps(altered(random, RECORD)) for _ in range(3)).encode()
    return damaged(random, text) if random.random() < 0.3 else text


def hostile_parquet(random: Random) -> bytes:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    texts = ["one", None if random.random() < 0.7 else "", "zw\u00e9i", "", "long " * 50] * 8
    columns = {
        "text": arrow.array(texts, random.choice((arrow.string(), arrow.string_view()))),
        "category": arrow.array(texts).dictionary_encode(),
        "bytes": arrow.array([None if text is None else text.encode() for text in texts]),
        "translation": arrow.array([{"en": text, "de": text} for text in texts]),
    }
    names = random.choices(sorted(columns), k=random.choice((1, 2)))
    shown = [random.choice((name, "text")) for name in names]
    table = arrow.table([columns[name] for name in names], names=shown)
    file = io.BytesIO()
    compression = random.choice(("none", "snappy", "gzip", "zstd", "brotli"))
    write_table(table, file, compression=compression, row_group_size=random.choice((7, 1000)))
    return damaged(random, file.getvalue()) if random.random() < 0.8 else file.getvalue()


def hostile_packed(random: Random, pack: Callable[[bytes], bytes]) -> bytes:
    lines = (b'{"text": "line %d"}\n' % number for number in range(random.randrange(200)))
    return damaged(random, pack(b"".join(lines)))


PAIR = Fields("en", "de")
HOSTILE: dict[str, tuple[Callable[[Random], bytes], list[Read]]] = {
    "a.json": (hostile_passages, [passages_of]),
    "a.jsonl": (
        hostile_lines,
        [lambda path: json_lines(path, "text"), lambda path: json_pairs(path, PAIR), tab_pairs],
    ),
    "a.parquet": (
        hostile_parquet,
        [lambda path: parquet_rows(path, "text"), lambda path: parquet_pairs(path, PAIR)],
    ),
    "a.jsonl.gz": (
        lambda random: hostile_packed(random, gzip.compress),
        [read_lines, lambda path: [unpacked(path)], lambda path: json_lines(path, "text")],
    ),
    "a.zst": (
        lambda random: hostile_packed(random, zstd.compress),
        [read_lines, lambda path: [unpacked(path)]],
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
@examples(250)
@given(random=st.randoms(use_true_random=False))
def test_a_file_with_anything_wrong_is_read_or_refused_by_its_name(
    name: str, random: Random
) -> None:
    make, readers = HOSTILE[name]
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(make(random))
        for read in readers:
            problem = problem_of(read, path)
            assert not problem or (name in problem and "\n" not in problem)


@pytest.fixture(params=[".gz", ".zst"])
def bomb(tmp_path, request):
    text = b" " * (6 << 20)
    path = tmp_path / f"bomb{request.param}"
    packed = gzip.compress(text, 1) if request.param == ".gz" else zstd.compress(text)
    path.write_bytes(packed)
    return path


def test_a_large_compressed_file_is_bounded_and_unpacked_once(bomb, tmp_path, monkeypatch):
    monkeypatch.setattr("sublayer.files.lines._most_bytes", lambda: 2 << 20)
    with pytest.raises(DataError, match=f"{bomb.name} becomes more than 0.0 GiB, half of the mem"):
        unpacked(bomb)
    cache = tmp_path / "cache"
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


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sublayer.files.lines._LONGEST_LINE", 1 << 20)
    (tmp_path / "a.jsonl").write_bytes(b"{}\n" + b" " * (1 << 20))
    with pytest.raises(DataError, match=r"a.jsonl, line 2: longer than 1 MiB"):
        list(read_lines(tmp_path / "a.jsonl"))
