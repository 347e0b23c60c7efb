"""Text in files, folders and packs: documents, sentences, bodies, and their splits."""

import gzip
import hashlib
import json
import os
import re
import subprocess
from fractions import Fraction
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sublayer.config.data import parse_split
from sublayer.data.text import documents, files
from sublayer.data.text.documents import HubSet, Reading, open_pack, parse_hub, read_documents
from sublayer.data.text.files import BOM, FileDocument, MemoryDocument, body_range
from sublayer.data.text.ranges import SPLITS, DocumentRange, divide, sentence_cut, shared_document
from sublayer.data.text.sentences import RULES, by_prose, by_spacy, sentences_of, split_sentences
from sublayer.errors import ConfigError, DataError
from sublayer.files.lines import FileText, read_lines, unpacked, zstd
from sublayer.tasks.records import read_parquet, read_records
from tests.breadth import examples
from tests.data.releases import write_release

STORY = "Once upon a time there was a café by the sea.\n" * 40
BOOK = 'THE BOOK\n\nCHAPTER I. Down the Hole. It begins\n\nMr. Day was\ntired.  "Why?" he\nasked. '
BOOK += "Nobody knew.\n  \t\nLetter 1\nChapter 1\nThe second day came. \u00c9t\u00e9 in\nbook 2. "
BOOK += "He slept.\n\n* * * * *\n"
PROSE = ["THE BOOK", "CHAPTER I. Down the Hole. It begins", "Mr. Day was tired."]
PROSE += ['"Why?" he asked.', "Nobody knew.", "Letter 1", "Chapter 1", "The second day came."]
PROSE += ["\u00c9t\u00e9 in book 2.", "He slept.", "* * * * *"]


def read(entry, cache):
    return [bytes(document.read()[:]) for document in files.read_path(str(entry), cache)]


def test_folders_globs_relative_paths_and_the_home_folder_are_read(tmp_path, cache, monkeypatch):
    folder = tmp_path / "texts"
    names = ("a/y", "a/z.md", "a[1].txt", "b.txt", "c.txt.gz")
    texts = {name: name.encode() for name in names[:4]} | {".hidden/d.txt": b"d", ".e.txt": b"e"}
    left_out = {"empty.md": b"", "packed.tar.gz": b"PK", "packed.zip": b"PK", "picture": b"\0PNG"}
    write_release(folder, {**texts, "c.txt.gz": gzip.compress(b"c.txt.gz"), **left_out})
    documents = files.read_path(str(folder), cache)
    assert [document.name for document in documents] == [str(folder / name) for name in names]
    assert read(folder, cache) == [name.encode() for name in names]
    assert [path.name for path in files.list_files_left_out(str(folder))] == list(left_out)
    assert files.list_files_left_out(str(folder / "b.txt")) == []
    assert read(folder / "**" / "*.txt", cache) == [b"a[1].txt", b"b.txt"]
    assert read(folder / "a[1].txt", cache) == [b"a[1].txt"], "a name that exists is no glob"
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder / "a")
    assert read("y", cache) == [b"a/y"] and read("~/b.txt", cache) == [b"b.txt"]
    with pytest.raises(DataError, match=f"d.txt is not there, in {folder / 'a'}:"):
        read("d.txt", cache)


GZ = gzip.compress(b"gz", mtime=0)  # without the time: all workers of pytest-xdist collect one name


@pytest.mark.parametrize("name, content, message", [
    ("a.pdf", b"%PDF", r"a.pdf is a document \(.pdf\), .*pdftotext"),
    ("a.txt", GZ, "a binary file, not text: its byte .* is zero.* must be .gz, "),
    ("owner/name", None, "hub:owner/name would be a data set"),
])  # fmt: skip
def test_entries_without_text_are_refused(tmp_path, cache, monkeypatch, name, content, message):
    monkeypatch.chdir(tmp_path)
    write_release(tmp_path, {} if content is None else {name: content})
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
    with pytest.raises(
        DataError, match=f"^{path} changed while it was read: run the command again"
    ):
        document.read()
    assert not list(cache.rglob("unpacked/*"))
    path.write_bytes(zstd.compress(b"the first text"))
    assert FileDocument(path, cache).read()[:] == b"the first text"
    for read in (FileDocument.read, FileDocument.digest):
        with pytest.raises(DataError, match=r"cannot read .*gone.txt"):
            read(FileDocument(tmp_path / "gone.txt", cache))


def parquet(path, table, **settings):
    arrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(arrow.table(table), path, **settings)
    return path


def json_lines(path, field):
    return documents.texts_of(documents.json_records(path), field)


def parquet_rows(path, field):
    return list(documents.texts_of(read_parquet(path, (field,)), field))


def test_a_line_of_json_is_a_document(tmp_path):
    texts = ["one\ntwo", None, "", "dr\u00e9i \u2028 \x85 \x1c", 'quote " \\ /', "\U0001f600"]
    lines = [json.dumps({"id": 1, "text": text}, ensure_ascii=False) for text in texts]
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf\r\n" + "\r\n".join(lines).encode())
    expected = [(line, (text or "").encode()) for line, text in enumerate(texts, 2)]
    assert list(json_lines(tmp_path / "a.jsonl", "text")) == expected


@pytest.mark.parametrize("line, message", [
    (b'{"text" "a"}', r" is not JSON \(Expecting ':' delimiter\)"),
    (b'["text"]', " is not a JSON object"),
    (b'{"title": "a", "body": "b"}', ": no field 'text': set data.text_field .* to title, body"),
    (b'{"text": 3}', ": field 'text' is int, not text"),
    (b'{"text": "\\ud800"}', r": '\\ud800' is half of a surrogate pair"),
])  # fmt: skip
def test_a_bad_line_of_json_is_refused(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "fine"}\n' + line + b"\n")
    with pytest.raises(DataError, match=f"a.jsonl:2{message}"):
        list(json_lines(tmp_path / "a.jsonl", "text"))


def test_a_row_of_parquet_is_a_document_whatever_its_columns_type(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    texts = ["one", None, "zw\u00e9i"]
    category = arrow.array(texts).dictionary_encode()
    large = category.cast(arrow.dictionary(arrow.int8(), arrow.large_string()))
    columns = {"a": texts, "b": category, "c": large, "d": arrow.array(texts, arrow.string_view())}
    path = parquet(tmp_path / "a.parquet", columns | {"id": [1, 2, 3]}, row_group_size=2)
    for name in "abcd":
        rows = parquet_rows(path, name)
        assert rows == [(1, b"one"), (2, b""), (3, "zw\u00e9i".encode())]
    with pytest.raises(DataError, match=":1: no field 'text': set data.text_field .* to a, b"):
        parquet_rows(path, "text")
    with pytest.raises(DataError, match="a.parquet:1: field 'id' is int, not text$"):
        parquet_rows(path, "id")
    twice = arrow.table([[1], [2], ["one"]], names=["id", "id", "text"])
    double = parquet(tmp_path / "twice.parquet", twice)
    assert parquet_rows(double, "text") == [(1, b"one")]
    with pytest.raises(DataError, match=":1: no field 'body': set data.text_field .* to text$"):
        parquet_rows(double, "body")
    with pytest.raises(DataError, match="several columns 'id'"):
        parquet_rows(double, "id")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="a.parquet is a damaged Parquet file"):
        parquet_rows(path, "text")


def test_blank_lines_stand_between_documents_none_of_which_is_without_end(tmp_path, monkeypatch):
    mark = b"*** %s OF THE PROJECT GUTENBERG EBOOK A ***\r\n"
    body = b" \r\none\r\ntwo\r\n\t\r\n\r\nthr\xffee\r\n\r\n"
    (tmp_path / "a.txt").write_bytes(mark % b"START" + body + mark % b"END" + b"\r\nLegal.\r\n")
    file = FileDocument(tmp_path / "a.txt", tmp_path)
    clean = list(documents.blank_line_texts(file, is_clean=True))
    assert clean == [(3, b"one\r\ntwo\r\n"), (7, b"thr\xffee\r\n")]
    lines = [line for line, _ in documents.blank_line_texts(file, is_clean=False)]
    assert lines == [1, 3, 7, 9, 11]
    monkeypatch.setattr(documents, "_LONGEST_DOCUMENT", 20)
    monkeypatch.setattr("sublayer.files.lines._LONGEST_LINE", 25)
    path = tmp_path / "a.txt"
    path.write_bytes(b"short\n\n12345678\n12345678\n1234\n" + b" " * 25)
    with pytest.raises(DataError, match=r"a.txt, document at line 3: longer than 0 MiB without a"):
        list(documents.blank_line_texts(FileDocument(path, tmp_path), is_clean=False))
    with pytest.raises(DataError, match=r"a.txt, line 6: longer than the maximum of 0 MiB"):
        list(read_lines(path))


def test_articles_of_wikipedia_are_extracted_without_titles(tmp_path):
    path = tmp_path / "wiki_00"
    articles = b'<doc id="12" title="Anarchism">\nAnarchism\n\nOne is.\n\nIt is old.\n</doc>\n'
    articles += b'<doc id="13" title="Redirect">\nRedirect\n</doc>\n\n'
    articles += b'<doc id="14" title="A &amp; B">\nFirst of all.\n</doc>\n'
    path.write_bytes(articles)
    found = [(1, b"One is.\n\nIt is old.\n"), (8, b""), (12, b"First of all.\n")]
    assert list(documents.extracted_articles(path)) == found
    for text, message in (
        (articles.replace(b"</doc>\n\n<doc", b"</doc>\nwords\n<doc"), "line 11: text outside"),
        (articles[:-8], "line 12: an article without </doc>"),
        (articles.replace(b"old", b"o\xff"), "line 1: byte 0xff is not UTF-8"),
    ):
        path.write_bytes(text)
        with pytest.raises(DataError, match=f"wiki_00, {message}"):
            list(documents.extracted_articles(path))


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("zst", zstd.compress)])
def test_a_large_compressed_file_is_bounded_and_unpacked_once(tmp_path, monkeypatch, suffix, pack):
    bomb, cache = tmp_path / f"bomb.{suffix}", tmp_path / "cache"
    bomb.write_bytes(pack(b" " * (6 << 20)))
    monkeypatch.setattr("sublayer.files.lines._most_bytes", lambda: 2 << 20)
    with pytest.raises(
        DataError, match=f"{bomb.name} decompresses to more than 0.0 GiB, half of the mem"
    ):
        unpacked(bomb)
    with monkeypatch.context() as patch:
        patch.setattr("sublayer.files.lines.disk_usage", lambda folder: Mock(free=10 << 20))
        with pytest.raises(
            DataError, match=f"{bomb.name} decompresses to more than 0.0 GiB, half of the free"
        ):
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


def test_files_are_documents_unless_a_rule_or_their_suffix_divides_them(tmp_path, cache):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "one"}\n\n{"text": " "}\n')
    assert texts(path, cache) == texts(path, cache, "file") == [path.read_bytes()]
    assert texts(path, cache, "json") == [b"one"]
    path.write_bytes(b'{"text": " "}\n')
    with pytest.raises(DataError, match="a.jsonl has no document with text"):
        texts(path, cache, "json")
    path.unlink()
    (tmp_path / "a.txt").write_bytes(b"whole\n\ntext")
    with pytest.raises(DataError, match="has no files with the suffix .json"):
        texts(tmp_path, cache, "json")
    # Of a folder, by the names of files.
    packed = parquet(tmp_path / "b.parquet", {"text": ["one", "two"], "body": ["1", "2"]})
    for rule in (None, "json"):
        assert texts(packed, cache, rule) == [b"one", b"two"]
        assert texts(tmp_path / "*.parquet", cache, rule, text_field="body") == [b"1", b"2"]
    assert texts(tmp_path, cache) == [b"whole\n\ntext", b"one", b"two"]
    assert texts(tmp_path, cache, "blank-line") == [b"whole\n", b"text"]
    with pytest.raises(DataError, match="b.parquet is an archive, not text"):
        texts(packed, cache, "file")
    for name in ("d.json.gz", "a.jsonl", "c.ndjson"):
        data = json.dumps({"text": name}).encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    found = [b"a.jsonl", b"one", b"two", b"c.ndjson", b"d.json.gz"]
    assert texts(tmp_path, cache, "json") == found


def test_published_files_are_told_apart_by_their_content_and_sets_of_the_hub_named(tmp_path):
    kinds = {b'\n{"text": 1}': "json", b'<doc id="1">': "articles", b"words": "file"}
    for text, kind in kinds.items():
        (tmp_path / "a.gz").write_bytes(gzip.compress(text))
        assert documents.sniffed_kind(tmp_path / "a.gz") == kind
    assert documents.sniffed_kind(tmp_path / "a.parquet") == "parquet"
    assert parse_hub("hub:a/b@train[:10%]") == HubSet("a/b", split="train[:10%]")
    named = HubSet("a-b/c.d_e", "20231101.en", "validation")
    assert parse_hub("hub:a-b/c.d_e:20231101.en@validation") == named
    with pytest.raises(DataError, match="does not name a data set: write hub:owner/name"):
        parse_hub("hub:a/b:c:d")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_text_is_refused_with_the_command_that_converts_it(tmp_path, encoding):
    (tmp_path / "book.txt").write_bytes(STORY.encode(encoding))
    with pytest.raises(DataError, match="is encoded as UTF-") as refused:
        files.read_path(str(tmp_path / "book.txt"), tmp_path)
    command = re.search("`(.*)`", str(refused.value))[1]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    (converted,) = tmp_path.glob("utf8-*")
    assert converted.read_text().lstrip("\ufeff") == STORY
    (tmp_path / "a.bin").write_bytes(b"\xff\xfe some bytes\n" * 9)  # which begin as wide text
    assert read(tmp_path / "a.bin", tmp_path) == [b"\xff\xfe some bytes\n" * 9]


def test_text_that_is_not_utf8_is_said_with_its_first_such_byte(tmp_path):
    latin, whole, late = (tmp_path / f"{name}.txt" for name in ("latin", "whole", "late"))
    latin.write_bytes(STORY.encode("latin-1"))
    whole.write_text("é" * 40_000)  # of which the first 64 KiB end within a character
    late.write_bytes((STORY * 2000).encode() + b"caf\xe9")
    assert f"{latin} is not UTF-8: byte 32 is 0xe9." in files.describe_encoding([whole, latin])
    assert f"byte {late.stat().st_size - 1:,} is 0xe9" in files.describe_encoding([late])
    assert files.describe_encoding([whole]) is None
    [note] = files.describe_files(str(tmp_path), seeks_records=True)
    command = re.search("`(.*)`", note.replace("2 files, first ", ""))[1]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "utf8-late.txt").read_text().endswith("café")


def test_packed_files_are_looked_through_once(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(cache))
    packed, plain = tmp_path / "a.txt.gz", tmp_path / "b.txt"
    packed.write_bytes(gzip.compress(np.random.default_rng(0).bytes(2 << 20)))
    plain.write_bytes(b"\xff" * (2 << 20))
    note = files.describe_encoding([packed, plain])
    assert len(list((cache / "utf-8").iterdir())) == 1
    monkeypatch.setattr("sublayer.data.text.files.read_blocks", lambda path: iter([b"\xff"]))
    assert files.describe_encoding([packed, plain]) == note


def test_a_pointer_of_git_lfs_is_no_file(tmp_path):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12345\n"
    for name in ("book.txt", "rows.csv", "book.txt.gz", "rows.parquet", "lines.jsonl"):
        path = tmp_path / name
        path.write_bytes(pointer)
        with pytest.raises(DataError, match="pointer of Git LFS"):
            FileDocument(path, tmp_path).read() if ".txt" in name else next(read_records(path))
    with pytest.raises(DataError, match="pointer of Git LFS"):
        texts(tmp_path, tmp_path, "file")


@pytest.mark.parametrize("name, text", {
    "list.json": json.dumps([{"text": "one", "n": 1}, {"text": "two\nlines"}], indent=1),
    "texts.json": "\ufeff" + json.dumps(["one", "two\nlines"]),
    "rows.csv": '\ufefftext,n\none,1\n"two\nlines",2\n',
    "rows.tsv": "text\tn\none\t1\ntwo\\nlines\t2\n",
}.items())  # fmt: skip
def test_lists_of_json_and_tables_are_said_and_read_by_the_remedy(tmp_path, cache, name, text):
    path = tmp_path / name
    path.write_text(text.replace("text", "body"))
    [note] = files.describe_files(str(path), seeks_records=True)
    settings = dict(re.findall(r"data\.(documents|text_field)=(\w+)", note))
    [other] = files.describe_files(str(path), seeks_records=True, as_options=True)
    assert f"--documents {settings['documents']}" in other and "data." not in other
    found = texts(path, cache, settings["documents"], text_field=settings.get("text_field", "text"))
    assert found == [b"one", b"two\\nlines" if name == "rows.tsv" else b"two\nlines"]
    if name != "texts.json":
        with pytest.raises(DataError, match=r"--text-field\) to .*body"):
            texts(path, cache, settings["documents"], text_field="other")


@pytest.mark.parametrize("line, settings", [
    ('{"text": "Of rivers.", "title": "A longer string"}', "data.documents=json reads"),
    ('{"id": "7", "the body": "Of rivers."}', "json data.text_field='the body' reads"),
    ('{"id": 7}', None), ('["Of rivers."]', None), ("{Of rivers.}", None),
    ('{"cells": [', "and data.documents=json"), ("<!DOCTYPE html>", "web page"),
])  # fmt: skip
def test_lines_of_json_that_are_read_as_they_are_are_said(tmp_path, line, settings):
    (tmp_path / "rivers.jsonl").write_text(f"{line}\n{line}\n")
    note = files.describe_records(tmp_path / "rivers.jsonl")
    assert (note is None) if settings is None else (settings in note)


@given(st.text('ab,;\t"[]{}:\r\n\0\u2028', max_size=30), st.sampled_from([".csv", ".tsv", ".json"]))
@examples(200)
def test_text_of_any_form_is_described_in_a_line_or_passed(tmp_path_factory, content, suffix):
    path = tmp_path_factory.getbasetemp() / f"described{suffix}"
    path.write_bytes(content.encode())
    assert "\n" not in (files.describe_records(path) or "")


def test_a_data_set_that_the_hub_does_not_give_is_named_on_one_line(monkeypatch):
    errors, refused = SimpleNamespace(DatasetsError=KeyError), Mock(side_effect=OSError("not\nnow"))
    library = SimpleNamespace(load_dataset=refused, exceptions=errors)
    monkeypatch.setattr("sublayer.data.text.documents.extra_module", lambda *_: library)
    with pytest.raises(DataError, match=r"^hub:a/b@train cannot be fetched .*\(not now\)"):
        HubSet("a/b").load()


@pytest.mark.all
def test_a_data_set_of_the_hub_is_fetched_once(tmp_path, monkeypatch, cache):
    # A data set in a folder of the working directory, which the library takes for the hub's.
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.chdir(tmp_path)
    path = write_release(tmp_path / "owner" / "name", {"train.parquet": b""}) / "train.parquet"
    parquet(path, {"text": ["one", "", "two"], "id": [1, 2, 3]})
    with pytest.raises(DataError, match="owner/name@train:1: no field 'body': .* text"):
        texts("hub:owner/name", cache, text_field="body")
    with pytest.raises(DataError, match=r"hub:owner/name@dev cannot be fetched from the hub \("):
        texts("hub:owner/name@dev", cache)
    with pytest.raises(ConfigError, match="data.documents = blank-line contradicts hub:owner/name"):
        texts("hub:owner/name", cache, "blank-line")
    documents = read_documents("hub:owner/name", cache)
    assert [document.read() for document in documents] == [b"one", b"two"]
    assert documents[1].name == "hub:owner/name@train, document at line 3"
    path.unlink()
    assert texts("hub:owner/name", cache, "json") == [b"one", b"two"]


def test_documents_are_packed_in_order_with_their_places_and_read_once(tmp_path):
    # SHA-256 of "403" ends in a zero byte, which numpy's byte strings do not show.
    kept, path = [b"first", b"403", b"first", b"last"], tmp_path / "pack"
    one, two = [(1, kept[0]), (3, b" \n"), (4, kept[1])], [(1, kept[2]), (7, kept[3])]
    sources = [("a", lambda: iter(one)), ("b", lambda: iter(two))]
    pack = open_pack(path, sources)
    places = ("a", 1), ("a", 4), ("b", 1), ("b", 7)
    names = [f"{name}, document at line {line}" for name, line in places]
    for found in (pack, open_pack(path, [("a", pytest.fail), ("b", pytest.fail)])):
        assert [record.read() for record in found] == kept
        assert [record.name for record in found] == names
        assert (len(found), found.n_empty, found.identity) == (4, 1, pack.identity)
    digests = [hashlib.sha256(text).hexdigest() for text in kept]
    loose = [MemoryDocument("x", text) for text in kept]
    assert [record.digest() for record in pack] == documents.identity_of(loose) == digests
    assert documents.content_keys(loose).tolist() == documents.content_keys(pack).tolist()
    assert [record.read() for record in (pack[-1], *pack[1:3])] == [b"last", *kept[1:3]]
    with pytest.raises(IndexError):
        pack[4]
    distinct = open_pack(tmp_path / "distinct", sources, is_distinct=True)
    assert [record.read() for record in distinct] == [*kept[:2], kept[3]]
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


@pytest.mark.parametrize("case", [
    "Did it rain? | It did! | We stayed in. | What?! | No!! | Stop.",
    "Mr. Bennet saw Dr. Watson in St. James's. | Messrs. Hill and Col. Forster left.",
    "Fruit, e.g. Apples, i.e. Food, vs. Stone. | The value is 3.14. | It is 2.5 times 1.256.",
    "J. R. R. Tolkien wrote it. | Thomas A. Edison met W. H. Auden. | J.-P. Sartre stayed.",
    "It is I. | He left. | It was Charles I. of England. | See W. I. Lenin. | I. Newton.",
    "He came at 5 p.m. | She left at 6 a.m. sharp. | They met at 5 p.m. Eastern Time.",
    "He lived in the U.S. | They met. | The U.S. President came, a Ph.D. Student.",
    "See No. 4 and vol. 2, p. 17. | He said no. | Four men came. | It cost £5. | 20 men paid.",
    "“What?” he said. | “Nothing.” | He left. | ‘Oh dear! | I shall be late!’ | She ran.",
    "He said “Go.” | (She went.) | [He did not.] | She spoke _so._ | He heard (see fig. 3). | So.",
    "I wonder... perhaps not. | Well... | He left. | I… I do not know. | He paused… | She waited.",
    "Wait . . . what? | Well . . . . | He left. | Really?—yes. | Come! come along.--Mr. Long left.",
    "2. The second point. | IV. The Fourth. | So are plums, etc. | Eat.",
    "今天很好。 | 好吗？！ | “好。” | 他说“好。”，走了。 | ３．５元。",
    "「はい。」と言った。 | 次！",
    "„Komm.“ | Er ging. | »Ja!« | ¿Qué? | ¡Sí! | Τι; | Όχι; ναι.",
    "हिन्दी है। | क्या? | كيف حالك؟ | بخير۔ | ደህና። | Gut. | 안녕하세요. | 네!",
    "(b). The first. | Il est là. | Élan est parti. | The end. | * * *",
])  # fmt: skip
def test_sentences_end_where_a_reader_ends_them(case):
    sentences = case.split(" | ")
    assert split_sentences(" ".join(sentences)) == sentences
    if not case.isascii() and case[0] in "今「":
        assert split_sentences("".join(sentences)) == sentences
        assert by_prose("".join(sentences)[:3] + "\n" + "".join(sentences)[3:]) == sentences


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_text_is_divided_by_lines_and_by_prose(line_end):
    text = BOOK.replace("\n", line_end)
    assert by_prose(text) == PROSE
    lines = [line.strip() for line in BOOK.split("\n")]
    assert RULES["lines"](text) == [line for line in lines if line]
    pytest.importorskip("spacy")
    # The sentencizer knows marks and no abbreviations but those of its tokenizer.
    text = f"One came. Two{line_end}left! Why?{line_end * 2}Nobody knew"
    assert by_spacy(text) == ["One came.", "Two left!", "Why?", "Nobody knew"]


def cut(text, rule, start=0, stop=None):
    found = sentences_of(DocumentRange(MemoryDocument("a.txt", text), start, stop), rule)
    return [sentence for chunk in found for sentence in chunk]


@examples(200)
@given(
    st.text(st.characters(codec="utf-8"), max_size=300) | st.text("aB.\n \r\"'”?!", max_size=300),
    st.integers(1, 40),
)
@example("a\r\r\nb\n\x0b\nc", 3)
def test_no_character_but_blanks_is_lost_wherever_a_chunk_ends(text, n_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sublayer.data.text.ranges._CHUNK_BYTES", n_bytes)
        for rule in ("lines", "prose"):
            found = RULES[rule](text)
            assert "".join("".join(found).split()) == "".join(text.split())
            assert not any(each != each.strip() or re.search(r"[\n\r]", each) for each in found)
            if not text.startswith("\ufeff"):
                assert cut(text.encode(), rule) == found


def test_cuts_fall_between_sentences_of_the_body():
    mark = "*** {} OF THE PROJECT GUTENBERG EBOOK A ***\n".format
    text = f"\ufeffLegal words.\n{mark('START')}One. Two.\n\nThree.\n{mark('END')}More words.\n"
    text, place = text.encode(), text.encode().index(b"Three")
    assert cut(text, "prose") == ["One.", "Two.", "Three."]
    assert cut(text, "prose", 0, place) == ["One.", "Two."]
    assert cut(text, "prose", place) == ["Three."]
    with pytest.raises(DataError, match="a.txt, line 3: byte 0xff is not UTF-8, which data.senten"):
        cut(b"one\n\ntwo \xff three\n", "prose")
    lines = b"one\n\ntwo\nthree\nfour"
    cases = [(lines, 16, 0, 5), (b"one\r\n\r\ntwo\r\nthree", 14, 0, 7), (lines, 16, 5, 15)]
    cases += [("one éé".encode(), 7, 0, 6), (b"one", 3, 0, 3), (b"\none two", 6, 0, 1)]
    assert [sentence_cut(*rest) for *rest, _ in cases] == [place for *_, place in cases]


BODY = b"CHAPTER I\n\nIt was a dark night.\n\nFINIS\n"
LICENCE = b"\n\nThis file should be named 11.txt\n*** START: FULL LICENSE ***\nTHE FULL LICENSE\n"
CREDIT = b"\n\nProduced by A and the Online\nTeam (images by\nThe Internet Archive)\n\n\n"
SMALL = b"SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n"
EBOOK = b" OF THE PROJECT GUTENBERG EBOOK"
MARKS = [
    (b"*** START OF THIS PROJECT GUTENBERG EBOOK A ***\n", b"*** END OF THIS PROJECT GUTENBERG A"),
    (b"***START" + EBOOK + b" A***\n", b"***END" + EBOOK),
    (b"*** START" + EBOOK + b" THE ADVENTURES OF A\nGENTLEMAN ***\n",
     b"End of Project Gutenberg's A, by B\n\n*** END OF THIS PROJECT GUTENBERG EBOOK A ***\n"),
    (b"*END*THE " + SMALL, b"End of the Project Gutenberg EBook of A, by B\n"),
    (b"*END THE " + SMALL, b"End of Project Gutenberg\xe2\x80\x99s A\n"),
    (b"**START**THE SMALL PRINT!**FOR ETEXTS**START**\nwords of lawyers\n*END*THE " + SMALL,
     b"End of The Project Gutenberg Etext of A\n"),
]  # fmt: skip


def body(text):
    start, stop = body_range(text)
    return text[start:stop]


@pytest.mark.parametrize(("start", "end"), MARKS)
def test_the_body_stands_between_the_marks(start, end):
    header = b"\xef\xbb\xbfThe Project Gutenberg EBook of A\n\nTitle: A\n\n"
    for credit in (b"\n", CREDIT):
        text = header + start + credit + BODY + b"\n" + end + LICENCE
        assert body(text).strip() == BODY.strip()
        assert body(text.replace(b"\n", b"\r\n")).strip() == BODY.strip().replace(b"\n", b"\r\n")


def test_without_both_marks_nothing_but_a_byte_order_mark_is_dropped():
    start, end = MARKS[0]
    for text in (start + BODY, BODY + end, BODY, b"", b"End of Project Gutenberg's day\n"):
        assert body(text) == body(BOM + text) == text
    about = b"Project Gutenberg began in 1971.\nThe end of Project Gutenberg is not near.\n"
    assert body(start + about + BODY + end) == about + BODY


def shares_of(split):
    return dict(zip(SPLITS, parse_split(split), strict=True))


SHARES = shares_of("90/5/5")


def texts_of(documents, shares=SHARES, name="text", **rules):
    parts = divide(documents, shares, name=name, **{"is_utf8": False, **rules})
    found = [[bytes(p.document.read()[p.start : p.stop]) for p in parts[each]] for each in SPLITS]
    return list(map(b"".join, found))


@pytest.mark.parametrize("shares, n_bytes, sizes", [
    # 99 * 0.9 = 89.1, 99 * 0.95 = 94.05; in floating point, 0.7 + 0.2 is less than 0.9.
    (SHARES, 99, [89, 5, 5]), (shares_of("70/20/10"), 10, [7, 2, 1]),
    ({"train": Fraction(19, 20), "test": Fraction(1, 20)}, 100, [95, 0, 5]),
])  # fmt: skip
def test_one_text_is_cut_at_exact_shares_rounded_down(shares, n_bytes, sizes):
    parts = texts_of([MemoryDocument("a", bytes(range(n_bytes)))], shares)
    assert [len(part) for part in parts] == sizes
    assert b"".join(parts) == bytes(range(n_bytes))
    with pytest.raises(DataError, match="text has 10 bytes, too few for a valid split"):
        texts_of([MemoryDocument("text", b"0123456789")])
    paragraphs = b"one two\r\nthree\r\n\r\n" * 20
    parts = texts_of([MemoryDocument("a", paragraphs)], is_utf8=True, sentences="prose")
    assert parts == [paragraphs[: len(paragraphs) * share // 20] for share in (18, 1, 1)]


def in_memory(contents):
    return [MemoryDocument(str(number), text) for number, text in enumerate(contents)]


def test_few_documents_give_the_smallest_to_the_small_splits():
    texts = [b"a" * 1000, b"b" * 400, b"c" * 200]
    assert texts_of(in_memory(texts)) == texts
    for contents in ([b"a", b"b"], [b"a", b"a", b"b"]):
        with pytest.raises(DataError, match="text has 2 different documents, too few for 3 splits"):
            texts_of(in_memory(contents))
    assert texts_of(in_memory(contents), {"train": Fraction(1)}) == [b"aab", b"", b""]


def drawn_texts(n_documents, seed=0):
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 40, n_documents)
    names = random.integers(0, n_documents * 2 // 3, n_documents)
    return [b"%d" % name * int(1 + sizes[name]) for name in names]


@pytest.fixture
def packed(tmp_path):
    path = tmp_path / "pack"
    return lambda contents: open_pack(path, [("a", lambda: iter(enumerate(contents, 1)))])


@pytest.mark.parametrize("n_documents", [12, 200])
def test_a_division_does_not_depend_on_where_documents_are(packed, n_documents):
    def by_hand(contents):
        """Fill test to a tenth of all bytes and then valid to three, in order of hashes."""
        free = sorted(set(contents), key=lambda text: hashlib.sha256(text).digest())
        splits = []
        for tenths in (1, 3):
            room = Fraction(tenths, 10) * sum(map(len, contents))
            taken = []
            for text in free:
                n_bytes = len(text) * contents.count(text)
                if n_bytes <= room:
                    taken.append(text)
                    room -= n_bytes
            splits.insert(0, taken)
            free = [text for text in free if text not in taken]
        return [sorted(text for text in contents if text in part) for part in (free, *splits)]

    contents = drawn_texts(n_documents, seed=n_documents)
    for collection in (in_memory(contents), packed(contents)):
        parts = divide(collection, shares_of("60/30/10"), name="a", is_utf8=False)
        found = [[piece.document.read() for piece in parts[split]] for split in SPLITS]
        assert [parts[split].n_bytes for split in SPLITS] == [sum(map(len, part)) for part in found]
        assert [piece.document.read() for piece in parts["train"][::-1]] == found[0][::-1]
        assert parts["train"][-1].document.read() == found[0][-1]
        with pytest.raises(IndexError):
            parts["train"][len(found[0])]
        assert [sorted(part) for part in found] == by_hand(contents)
        names = [piece.document.name for piece in parts["train"]]
        assert names == sorted(names, key=lambda name: int(name.split()[-1]))


def test_the_first_document_that_two_texts_share_is_found(packed):
    contents = drawn_texts(60, seed=2)
    others = [b"other", *drawn_texts(40, seed=3), contents[5]]
    first = min(set(contents) & set(others), key=lambda text: hashlib.sha256(text).hexdigest())
    number, other = shared_document(in_memory(contents), packed(others))
    assert contents[number] == others[other] == first
    assert shared_document(in_memory([b"x"]), in_memory(others)) is None
