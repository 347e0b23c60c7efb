import gzip
import os
from pathlib import Path

import pytest
import zstandard

from sublayer.data.text import files
from sublayer.data.text.files import FileDocument, MemoryDocument, is_tar, read_path
from sublayer.errors import DataError
from sublayer.files.cache_folder import lock_of
from tests.waiting import waits_until

TEXT = b"first line\nsecond \xff line\r\n\xef\xbb\xbf"


def read(entry: Path, cache: Path) -> list[bytes]:
    return [bytes(document.read()[:]) for document in read_path(str(entry), cache)]


def test_a_file_is_its_bytes(tmp_path, cache):
    (tmp_path / "a.txt").write_bytes(TEXT)
    assert read(tmp_path / "a.txt", cache) == [TEXT]


def test_gzip_and_zstd_are_read_by_suffix(tmp_path, cache):
    (tmp_path / "a.gz").write_bytes(gzip.compress(TEXT, mtime=0) + gzip.compress(b"more", mtime=0))
    (tmp_path / "b.ZST").write_bytes(zstandard.compress(TEXT) + zstandard.compress(b"more"))
    assert read(tmp_path / "a.gz", cache) == [TEXT + b"more"]
    assert read(tmp_path / "b.ZST", cache) == [TEXT + b"more"]


def test_zstd_files_of_other_programs_are_read(tmp_path, cache):
    # pzstd puts frames to be skipped between the others; zstd --long=31 needs a window of 2 GiB.
    skipped = bytes.fromhex("502a4d1804000000") + b"size"
    long = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    ).compressobj()
    (tmp_path / "a.zst").write_bytes(
        skipped + zstandard.compress(TEXT) + long.compress(TEXT) + long.flush()
    )
    assert read(tmp_path / "a.zst", cache) == [TEXT + TEXT]


def test_a_folder_is_its_text_files_in_order_of_path(tmp_path, cache):
    folder = tmp_path / "texts"
    for name, content in {
        "b.txt": b"b",
        "a/z.md": b"z",
        "a/y": b"y",
        "c.txt.gz": gzip.compress(b"c", mtime=0),
        ".hidden/d.txt": b"d",
        ".e.txt": b"e",
        "picture.png": b"\x89PNG\0\0",
        "packed.zip": b"PK",
        "packed.tar.gz": b"PK",
        "empty.txt": b"",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    found = read_path(str(folder), cache)
    assert [document.name for document in found] == [
        str(folder / name) for name in ("a/y", "a/z.md", "b.txt", "c.txt.gz")
    ]
    assert read(folder, cache) == [b"y", b"z", b"b", b"c"]


def test_a_glob_is_its_files_in_order_once_each(tmp_path, cache):
    for name in ("b.txt", "a.txt", "deep/c.txt", "d.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    assert read(tmp_path / "*.txt", cache) == [b"a.txt", b"b.txt"]
    assert read(tmp_path / "**" / "*.txt", cache) == [b"a.txt", b"b.txt", b"deep/c.txt"]


def test_a_name_with_brackets_that_exists_is_a_file(tmp_path, cache):
    (tmp_path / "a[1].txt").write_bytes(b"one")
    assert read(tmp_path / "a[1].txt", cache) == [b"one"]


def test_relative_paths_start_from_the_working_directory(tmp_path, cache, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_bytes(b"one")
    assert read(Path("a.txt"), cache) == [b"one"]


def test_home_is_expanded(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.txt").write_bytes(b"one")
    assert read(Path("~/a.txt"), cache) == [b"one"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.txt", None, "no such file or folder: .*missing.txt"),
        ("missing/*.txt", None, r"missing/\*.txt has no text"),
        ("empty.txt", b"", "empty.txt is empty"),
        ("empty.gz", gzip.compress(b"", mtime=0), "empty.gz is empty"),
        ("cut.gz", gzip.compress(bytes(range(256)) * 50)[:-20], "cut.gz is damaged gzip"),
        ("not.gz", b"plain text", "not.gz is damaged gzip"),
        (
            "broken.gz",
            gzip.compress(b"abc", mtime=0)[:10] + b"\xff" * 30,
            "broken.gz is damaged gzip",
        ),
        ("cut.zst", zstandard.compress(os.urandom(5000))[:-20], r"cut.zst is damaged zstd"),
        ("not.zst", b"plain text", "not.zst is damaged zstd"),
        ("a.zip", b"PK", "a.zip is packed, not text: unpack it first"),
        ("a.epub", b"PK", r"a.epub is a document \(.epub\), not plain text: .* first$"),
        ("a.pdf", b"%PDF", r"a.pdf is a document \(.pdf\), .* first, as `pdftotext` does$"),
        ("a.tar.gz", b"PK", r"a.tar.gz is packed, not text"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, cache, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as raised:
        read(tmp_path / name, cache)
    assert "\n" not in str(raised.value)


def test_a_folder_without_text_is_refused(tmp_path, cache):
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    with pytest.raises(DataError, match="has no text: name a folder or a glob"):
        read_path(str(tmp_path), cache)


def test_a_file_that_vanishes_is_named(tmp_path, cache):
    document = FileDocument(tmp_path / "gone.txt", cache)
    with pytest.raises(DataError, match=r"cannot read .*gone.txt"):
        document.read()
    with pytest.raises(DataError, match=r"cannot read .*gone.txt"):
        document.digest()


def test_equal_texts_have_equal_digests(tmp_path, cache):
    (tmp_path / "a").write_bytes(b"text")
    assert FileDocument(tmp_path / "a", cache).digest() == MemoryDocument("b", b"text").digest()
    assert MemoryDocument("b", b"text").digest() != MemoryDocument("b", b"Text").digest()


def test_archives_are_told_by_name():
    assert all(is_tar(Path(name)) for name in ("a.tar", "a.TGZ", "a.b.tar.gz", "a.tar.zst"))
    assert not any(is_tar(Path(name)) for name in ("a.gz", "tar", "a.tar.txt"))


@pytest.mark.parametrize("small_bytes", [10, 1000])
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_what_is_unpacked_is_of_the_file_that_was_digested(
    tmp_path, cache, monkeypatch, small_bytes, suffix
):
    monkeypatch.setattr(files, "_SMALL_BYTES", small_bytes)
    pack = {".gz": lambda text: gzip.compress(text, mtime=0), ".zst": zstandard.compress}[suffix]
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


def test_of_several_processes_one_unpacks_and_the_others_wait(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(files, "_SMALL_BYTES", 1)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"as it is packed", mtime=0))
    FileDocument(path, cache).read()
    [unpacked] = (cache / "unpacked").iterdir()
    unpacked.unlink()
    read = waits_until(
        lock_of(unpacked),
        f"waiting for another process, which unpacks {path}",
        lambda: FileDocument(path, cache).read()[:],
        lambda: unpacked.write_bytes(b"as another process unpacked it"),
    )
    assert read == b"as another process unpacked it"
    assert list((cache / "unpacked").iterdir()) == [unpacked]
