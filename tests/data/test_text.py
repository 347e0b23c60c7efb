"""Text in files, folders and globs, and documents in files of many, packed or of the hub."""

import gzip
import hashlib
import json
import os
import re
import subprocess

import pytest

from sublayer.data.text import files, records
from sublayer.data.text.document_store import digests_of, identity_of, open_pack
from sublayer.data.text.documents import Reading, read_documents, sniffed_kind
from sublayer.data.text.files import FileDocument, MemoryDocument, list_files_left_out, read_path
from sublayer.data.text.hub import HubSet, parse_hub
from sublayer.data.text.records import (
    blank_line_texts,
    extracted_articles,
    json_lines,
    parquet_rows,
)
from sublayer.errors import ConfigError, DataError
from sublayer.files.file_text import FileText
from sublayer.files.lines import read_lines, unpacked, zstd

STORY = "Once upon a time there was a café by the sea.\n" * 40


def read(entry, cache):
    return [bytes(document.read()[:]) for document in read_path(str(entry), cache)]


def write(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_folders_globs_relative_paths_and_the_home_folder_are_read(tmp_path, cache, monkeypatch):
    folder = tmp_path / "texts"
    names = ("a/y", "a/z.md", "a[1].txt", "b.txt", "c.txt.gz")
    write(folder, {name: name.encode() for name in names[:4]})
    write(folder, {"c.txt.gz": gzip.compress(b"c.txt.gz"), ".hidden/d.txt": b"d", ".e.txt": b"e"})
    left_out = {"empty.md": b"", "packed.tar.gz": b"PK", "packed.zip": b"PK", "picture": b"\0PNG"}
    write(folder, left_out)
    documents = read_path(str(folder), cache)
    assert [document.name for document in documents] == [str(folder / name) for name in names]
    assert read(folder, cache) == [name.encode() for name in names]
    assert [path.name for path in list_files_left_out(str(folder))] == list(left_out)
    assert list_files_left_out(str(folder / "b.txt")) == []
    assert read(folder / "**" / "*.txt", cache) == [b"a[1].txt", b"b.txt"]
    assert read(folder / "a[1].txt", cache) == [b"a[1].txt"], "a name that exists is no glob"
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder / "a")
    assert read("y", cache) == [b"a/y"] and read("~/b.txt", cache) == [b"b.txt"]
    with pytest.raises(DataError, match=f"no such file or folder: d.txt in {folder / 'a'}$"):
        read("d.txt", cache)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tar.gz", b"PK", "a.tar.gz is packed"),
        ("a.pdf", b"%PDF", r"a.pdf is a document \(.pdf\), .*pdftotext"),
        ("a.txt", b"%PDF-1.7 text and more", "is not text but a PDF file: name a file of text"),
        ("a.txt", b"\x1f\x8b\x08 gz", "compressed with gzip: name it .gz"),
        ("https://example.org/book.txt", None, "curl -LO https://example.org/book.txt"),
        ("owner/name", None, "hub:owner/name would be a data set"),
    ],
)
def test_entries_without_text_are_refused(tmp_path, cache, monkeypatch, name, content, message):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        write(tmp_path, {name: content})
    with pytest.raises(DataError, match=message):
        read(name, cache)


@pytest.mark.parametrize("small_bytes", [10, 1000])
def test_unpacked_text_is_of_the_file_that_was_digested(tmp_path, cache, monkeypatch, small_bytes):
    monkeypatch.setattr(files, "_SMALL_BYTES", small_bytes)
    path = tmp_path / "a.txt.zst"
    path.write_bytes(zstd.compress(b"the first text"))
    status = path.stat()
    document = FileDocument(path, cache)
    document.digest()
    path.write_bytes(zstd.compress(b"another  text."))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(DataError, match=f"^{path} changed while it was read: leave it as it is"):
        document.read()
    assert not list(cache.rglob("unpacked/*"))
    path.write_bytes(zstd.compress(b"the first text"))
    assert FileDocument(path, cache).read()[:] == b"the first text"


@pytest.mark.parametrize(
    ("content", "message", "text"),
    [
        (STORY.encode("utf-16"), "is text in UTF-16", STORY),
        (b"a" * 20_000 + b"\0end", "byte 20,000 is zero", "a" * 20_000 + "end"),
    ],
)
def test_other_text_is_refused_with_the_command_that_converts_it(tmp_path, content, message, text):
    (tmp_path / "book.txt").write_bytes(content)
    with pytest.raises(DataError, match=message) as refused:
        read(tmp_path / "book.txt", tmp_path)
    before = set(tmp_path.iterdir())
    command = re.search("`(.*)`", str(refused.value))[1]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    [path] = set(tmp_path.iterdir()) - before
    assert path.read_text().lstrip("\ufeff") == text


def parquet(path, table, **settings):
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
    articles = b'<doc id="12" title="Anarchism">\nAnarchism\n\nOne is.\n\nIt is old.\n</doc>\n'
    articles += b'<doc id="13" title="Redirect">\nRedirect\n</doc>\n\n'
    articles += b'<doc id="14" title="A &amp; B">\nFirst of all.\n</doc>\n'
    path.write_bytes(articles)
    found = [(1, b"One is.\n\nIt is old.\n"), (8, b""), (12, b"First of all.\n")]
    assert list(extracted_articles(path)) == found
    for text, message in (
        (articles.replace(b"</doc>\n\n<doc", b"</doc>\nwords\n<doc"), "line 11: not within"),
        (articles[:-8], "line 12: an article begins that does not end"),
        (articles.replace(b"old", b"o\xff"), "line 1: byte 0xff is not UTF-8"),
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


def texts(entry, cache, rule=None, **settings):
    documents = read_documents(str(entry), cache, Reading(rule, **settings))
    return [bytes(document.read()[:]) for document in documents]


def test_files_are_documents_unless_a_rule_divides_them(tmp_path, cache):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "one"}\n\n{"text": " "}\n')
    assert texts(path, cache) == texts(path, cache, "file") == [path.read_bytes()]
    assert texts(path, cache, "json") == [b"one"]
    path.write_bytes(b'{"text": " "}\n')
    with pytest.raises(DataError, match="a.jsonl has no document with text"):
        texts(path, cache, "json")


def test_parquet_is_read_by_its_suffix_under_json_and_unset(tmp_path, cache):
    parquet(tmp_path / "b.parquet", {"text": ["one", "two"], "body": ["1", "2"]})
    (tmp_path / "a.txt").write_bytes(b"whole\n\ntext")
    for rule in (None, "json"):
        assert texts(tmp_path / "b.parquet", cache, rule) == [b"one", b"two"]
        assert texts(tmp_path / "*.parquet", cache, rule, text_field="body") == [b"1", b"2"]
    assert texts(tmp_path, cache) == [b"whole\n\ntext", b"one", b"two"]
    assert texts(tmp_path, cache, "blank-line") == [b"whole\n", b"text"]
    with pytest.raises(DataError, match="b.parquet is packed, not text"):
        texts(tmp_path / "b.parquet", cache, "file")


def test_json_of_a_folder_is_read_by_the_names_of_files(tmp_path, cache):
    (tmp_path / "README.md").write_bytes(b"about")
    with pytest.raises(DataError, match="has no files of JSON lines or Parquet"):
        texts(tmp_path, cache, "json")
    for name in ("b.json.gz", "a.jsonl", "c.ndjson"):
        data = json.dumps({"text": name}).encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert texts(tmp_path, cache, "json") == [b"a.jsonl", b"b.json.gz", b"c.ndjson"]


def test_published_files_are_told_apart_by_their_content(tmp_path):
    kinds = {b'\n{"text": 1}': "json", b'<doc id="1">': "articles", b"words": "file"}
    for text, kind in kinds.items():
        (tmp_path / "a.gz").write_bytes(gzip.compress(text))
        assert sniffed_kind(tmp_path / "a.gz") == kind
    assert sniffed_kind(tmp_path / "a.parquet") == "parquet"


def test_data_sets_of_the_hub_are_named():
    assert parse_hub("hub:a/b@train[:10%]") == HubSet("a/b", split="train[:10%]")
    named = HubSet("a-b/c.d_e", "20231101.en", "validation")
    assert parse_hub("hub:a-b/c.d_e:20231101.en@validation") == named
    for entry in ("hub:a", "hub:a/b/c", "hub:a/b:c:d"):
        with pytest.raises(DataError, match="does not name a data set: write hub:owner/name"):
            parse_hub(entry)


@pytest.mark.all
def test_a_data_set_of_the_hub_is_fetched_once(tmp_path, monkeypatch, cache):
    # A data set in a folder of the working directory, which the library takes for the hub's.
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    parquet(folder / "train.parquet", {"text": ["one", "", "two"], "id": [1, 2, 3]})
    with pytest.raises(DataError, match="owner/name@train has no field 'body': .* text, id"):
        texts("hub:owner/name", cache, text_field="body")
    with pytest.raises(DataError, match=r"hub:owner/name@dev cannot be fetched from the hub \("):
        texts("hub:owner/name@dev", cache)
    with pytest.raises(ConfigError, match="data.documents = blank-line contradicts hub:owner/name"):
        texts("hub:owner/name", cache, "blank-line")
    documents = read_documents("hub:owner/name", cache)
    assert [document.read() for document in documents] == [b"one", b"two"]
    assert documents[1].name == "hub:owner/name@train, document at line 3"
    (folder / "train.parquet").unlink()
    assert texts("hub:owner/name", cache, "json") == [b"one", b"two"]


def test_documents_are_packed_in_order_with_their_places_and_read_once(tmp_path):
    # SHA-256 of "403" ends in a zero byte, which numpy's byte strings do not show.
    kept, path = [b"first", b"403", b"first", b"last"], tmp_path / "pack"
    one, two = [(1, kept[0]), (3, b" \n"), (4, kept[1])], [(1, kept[2]), (7, kept[3])]
    sources = [("a", lambda: iter(one)), ("b", lambda: iter(two))]
    records = open_pack(path, sources)
    places = ("a", 1), ("a", 4), ("b", 1), ("b", 7)
    for found in (records, open_pack(path, [("a", pytest.fail), ("b", pytest.fail)])):
        assert [record.read() for record in found] == kept
        names = [f"{name}, document at line {line}" for name, line in places]
        assert [record.name for record in found] == names
        assert (len(found), found.n_empty, found.identity) == (4, 1, records.identity)
    digests = [hashlib.sha256(text).hexdigest() for text in kept]
    assert [record.digest() for record in records] == digests
    documents = [MemoryDocument("x", text) for text in kept]
    assert digests_of(documents, 0, 9).tolist() == digests_of(records, 0, 9).tolist()
    assert identity_of(documents) == digests
    assert records[-1].read() == b"last"
    assert [record.read() for record in records[1:3]] == kept[1:3]
    with pytest.raises(IndexError):
        records[4]
    distinct = open_pack(tmp_path / "distinct", sources, is_distinct=True)
    assert [record.read() for record in distinct] == [kept[0], kept[1], kept[3]]
    whole = path.read_bytes()
    for place in (*range(24, len(whole), 7), len(whole) - 1):
        damaged = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        for content in (damaged, whole[:place]):
            path.write_bytes(content)
            assert [each.read() for each in open_pack(path, sources)] == kept
            assert path.read_bytes() == whole

    def broken():
        yield 1, b"one"
        raise DataError("a, line 2: broken")

    with pytest.raises(DataError, match="a, line 2: broken"):
        open_pack(tmp_path / "packs" / "pack", [("a", broken)])
    assert not (tmp_path / "packs").exists(), "a broken record leaves nothing behind"
