"""Text in files, folders and globs: found, decompressed, or refused by their kind."""

import gzip
import os
import re
import subprocess
from pathlib import Path

import pytest

from sublayer.data.text import files
from sublayer.data.text.files import (
    FileDocument,
    is_tar,
    list_files_left_out,
    read_path,
)
from sublayer.data.text.sniffing import describe_encoding, describe_records
from sublayer.errors import DataError
from sublayer.files.lines import zstd

STORY = "Once upon a time there was a café by the sea.\n" * 40


def read(entry: Path | str, cache: Path) -> list[bytes]:
    return [bytes(document.read()[:]) for document in read_path(str(entry), cache)]


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_compressed_files_are_read_by_suffix(tmp_path, cache):
    text = b"first line\nsecond \xff line\r\n\xef\xbb\xbf"
    # pzstd puts frames to be skipped between the others; zstd --long=31 needs a window of 2 GiB.
    skipped = bytes.fromhex("502a4d1804000000") + b"size"
    long = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 28})
    packed = {
        "a.txt": text + b"more",
        "a.gz": gzip.compress(text) + gzip.compress(b"more"),
        "b.ZST": skipped + zstd.compress(text) + long.compress(b"more") + long.flush(),
    }
    write(tmp_path, packed)
    for name in packed:
        assert read(tmp_path / name, cache) == [text + b"more"]


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
        ("a.txt", b"text\0text and more text", "its byte 4 is zero"),
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


def test_a_pipe_and_a_file_that_vanished_are_refused(tmp_path, cache):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe is no file and no folder"):
        read(tmp_path / "pipe", cache)
    with pytest.raises(DataError, match=r"cannot read .*gone.txt"):
        FileDocument(tmp_path / "gone.txt", cache).read()
    with pytest.raises(DataError, match=r"cannot read .*gone.txt"):
        FileDocument(tmp_path / "gone.txt", cache).digest()
    assert all(is_tar(Path(name)) for name in ("a.tar", "a.TGZ", "a.b.tar.gz", "a.tar.zst"))
    assert not any(is_tar(Path(name)) for name in ("a.gz", "tar", "a.tar.txt"))


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


def test_encodings_and_lines_of_json_are_described(tmp_path):
    latin, whole, lines = (tmp_path / name for name in ("latin", "whole", "a.jsonl"))
    latin.write_bytes(STORY.encode("latin-1"))
    whole.write_text("é" * 40_000)  # of which the first 64 KiB end within a character
    assert "byte 32 is 0xe9" in describe_encoding(latin)
    assert describe_encoding(whole) is None
    lines.write_text('{"text": "Of rivers.", "title": "A longer string"}\n')
    assert "data.documents=json reads" in describe_records(lines)
    lines.write_text('{"id": "7", "the body": "Of rivers."}\n')
    assert "json data.text_field='the body' reads" in describe_records(lines)
    for text in ('{"id": 7}', "[" * 60_000):
        lines.write_text(f"{text}\n{text}\n")
        assert describe_records(lines) is None
