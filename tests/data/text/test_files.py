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
    MemoryDocument,
    is_tar,
    list_files_left_out,
    read_path,
)
from sublayer.data.text.sniffing import describe_encoding, describe_records
from sublayer.errors import DataError
from sublayer.files.lines import zstd

TEXT = b"first line\nsecond \xff line\r\n\xef\xbb\xbf"
STORY = "Once upon a time there was a café by the sea.\n" * 40


def read(entry: Path | str, cache: Path) -> list[bytes]:
    return [bytes(document.read()[:]) for document in read_path(str(entry), cache)]


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_compressed_files_are_read_by_suffix(tmp_path, cache):
    # pzstd puts frames to be skipped between the others; zstd --long=31 needs a window of 2 GiB.
    skipped = bytes.fromhex("502a4d1804000000") + b"size"
    long = zstd.ZstdCompressor(
        options={
            zstd.CompressionParameter.window_log: 28,
            zstd.CompressionParameter.enable_long_distance_matching: 1,
        }
    )
    folder = write(
        tmp_path,
        {
            "a.txt": TEXT,
            "a.gz": gzip.compress(TEXT) + gzip.compress(b"more"),
            "a.ZST": zstd.compress(TEXT) + zstd.compress(b"more"),
            "b.zst": skipped + zstd.compress(TEXT) + long.compress(b"more") + long.flush(),
        },
    )
    assert read(folder / "a.txt", cache) == [TEXT]
    for name in ("a.gz", "a.ZST", "b.zst"):
        assert read(folder / name, cache) == [TEXT + b"more"]


def test_a_folder_is_its_text_files_in_order_of_path(tmp_path, cache):
    folder = write(
        tmp_path / "texts",
        {
            "b.txt": b"b",
            "a/z.md": b"z",
            "a/y": b"y",
            "c.txt.gz": gzip.compress(b"c"),
            ".hidden/d.txt": b"d",
            ".e.txt": b"e",
            "picture.png": b"\x89PNG\0\0",
            "packed.zip": b"PK",
            "packed.tar.gz": b"PK",
            "empty.txt": b"",
        },
    )
    documents = read_path(str(folder), cache)
    names = ("a/y", "a/z.md", "b.txt", "c.txt.gz")
    assert [document.name for document in documents] == [str(folder / name) for name in names]
    assert read(folder, cache) == [b"y", b"z", b"b", b"c"]
    left_out = [path.name for path in list_files_left_out(str(folder))]
    assert left_out == ["empty.txt", "packed.tar.gz", "packed.zip", "picture.png"]
    assert list_files_left_out(str(folder / "b.txt")) == []


def test_globs_relative_paths_and_the_home_folder_are_read(tmp_path, cache, monkeypatch):
    names = ("b.txt", "a.txt", "deep/c.txt", "d.md", "a[1].txt")
    write(tmp_path, {name: name.encode() for name in names})
    assert read(tmp_path / "?.txt", cache) == [b"a.txt", b"b.txt"]
    assert read(tmp_path / "**" / "?.txt", cache) == [b"a.txt", b"b.txt", b"deep/c.txt"]
    assert read(tmp_path / "a[1].txt", cache) == [b"a[1].txt"], "a name that exists is no glob"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "deep")
    assert read("c.txt", cache) == [b"deep/c.txt"]
    with pytest.raises(DataError, match=f"no such file or folder: d.txt in {tmp_path / 'deep'}$"):
        read("d.txt", cache)
    assert read("~/a.txt", cache) == [b"a.txt"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.txt", None, "no such file or folder: .*missing.txt"),
        ("missing/*.txt", None, r"missing/\*.txt has no text"),
        ("empty.txt", b"", "empty.txt is empty"),
        ("cut.gz", gzip.compress(bytes(range(256)) * 50, mtime=0)[:-20], "cut.gz is damaged gzip"),
        ("bad.gz", gzip.compress(b"abc", mtime=0)[:10] + b"\xff" * 30, "bad.gz is damaged gzip"),
        ("cut.zst", zstd.compress(os.urandom(5000))[:-20], "cut.zst is damaged zstd"),
        ("a.tar.gz", b"PK", "a.tar.gz is packed"),
        ("a.pdf", b"%PDF", r"a.pdf is a document \(.pdf\), .*pdftotext"),
        ("a.txt", b"%PDF-1.7 text and more", "is not text but a PDF file: name a file of text"),
        ("a.txt", b"\x1f\x8b\x08 gz", "compressed with gzip: name it .gz"),
        ("*.txt", b"PK\x03\x04 docx", "a zip archive"),
        ("a.txt", b"text\0text and more text", "its byte 4 is zero"),
        ("folder", {"picture.png": b"\x89PNG\0\0"}, "folder has no text"),
        ("https://example.org/book.txt", None, "curl -LO https://example.org/book.txt"),
        ("owner/name", None, "hub:owner/name would be a data set"),
        ("x" * 5000, None, "cannot read .*File name too long"),
    ],
)
def test_entries_without_text_are_refused(tmp_path, cache, monkeypatch, name, content, message):
    monkeypatch.chdir(tmp_path)
    if isinstance(content, dict):
        write(tmp_path / name, content)
    elif content is not None:
        write(tmp_path, {name: content})
    with pytest.raises(DataError, match=message):
        read(name, cache)


def test_a_pipe_and_a_file_that_vanished_are_refused(tmp_path, cache):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe is no file and no folder"):
        read(tmp_path / "pipe", cache)
    document = FileDocument(tmp_path / "gone.txt", cache)
    for access in (document.read, document.digest):
        with pytest.raises(DataError, match=r"cannot read .*gone.txt"):
            access()


def test_archives_and_digests_are_known(tmp_path, cache):
    assert all(is_tar(Path(name)) for name in ("a.tar", "a.TGZ", "a.b.tar.gz", "a.tar.zst"))
    assert not any(is_tar(Path(name)) for name in ("a.gz", "tar", "a.tar.txt"))
    (tmp_path / "a").write_bytes(b"text")
    assert FileDocument(tmp_path / "a", cache).digest() == MemoryDocument("b", b"text").digest()
    assert MemoryDocument("b", b"text").digest() != MemoryDocument("b", b"Text").digest()


@pytest.mark.parametrize(("suffix", "small_bytes"), [(".gz", 10), (".zst", 1000)])
def test_what_is_unpacked_is_of_the_file_that_was_digested(
    tmp_path, cache, monkeypatch, small_bytes, suffix
):
    monkeypatch.setattr(files, "_SMALL_BYTES", small_bytes)
    pack = {".gz": lambda text: gzip.compress(text, mtime=0), ".zst": zstd.compress}[suffix]
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack(b"the first text"))
    status = path.stat()
    document = FileDocument(path, cache)
    document.digest()
    path.write_bytes(pack(b"another  text."))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(DataError, match=f"^{path} changed while it was read: leave it as it is"):
        document.read()
    assert not list(cache.rglob("unpacked/*"))
    path.write_bytes(pack(b"the first text"))
    assert FileDocument(path, cache).read()[:] == b"the first text"


def converted(error, folder: Path) -> Path:
    """Run the command that an error gives; return the file that it makes."""
    before = set(folder.iterdir())
    subprocess.run(re.search("`(.*)`", str(error))[1], shell=True, cwd=folder, check=True)
    [path] = set(folder.iterdir()) - before
    return path


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_wide_text_is_refused_with_the_command_that_converts_it(tmp_path, encoding):
    content = STORY.encode(encoding)
    write(tmp_path, {"book.txt": content, "book.gz": gzip.compress(content)})
    with pytest.raises(DataError, match="is text in UTF-"):
        read(tmp_path / "book.gz", tmp_path)
    with pytest.raises(DataError, match="is text in UTF-") as refused:
        read(tmp_path / "book.txt", tmp_path)
    assert converted(refused.value, tmp_path).read_text().lstrip("\ufeff") == STORY


def test_a_zero_byte_far_in_is_refused_with_its_place(tmp_path):
    write(tmp_path, {"book.txt": b"a" * 20_000 + b"\0end"})
    with pytest.raises(DataError, match="byte 20,000 is zero") as refused:
        read(tmp_path / "book.txt", tmp_path)
    assert converted(refused.value, tmp_path).read_bytes() == b"a" * 20_000 + b"end"


def test_the_first_byte_that_is_not_utf8_is_described(tmp_path):
    latin, whole = tmp_path / "latin.txt", tmp_path / "whole.txt"
    latin.write_bytes(STORY.encode("latin-1"))
    whole.write_text("é" * 40_000)  # of which the first 64 KiB end within a character
    assert "byte 32 is 0xe9" in describe_encoding(latin)
    assert describe_encoding(whole) is None


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ('{"text": "Of rivers.", "title": "A longer string"}', "data.documents=json reads"),
        ('{"id": "7", "the body": "Of rivers."}', "json data.text_field='the body' reads"),
        ('{"id": 7}', None),
        ("[" * 60_000, None),
    ],
)
def test_the_settings_that_read_lines_of_json_are_described(tmp_path, line, settings):
    (tmp_path / "a.jsonl").write_text(f"{line}\n{line}\n")
    note = describe_records(tmp_path / "a.jsonl")
    assert note is None if settings is None else settings in note
