"""Files are whole or absent, fetched, unpacked, read and parsed, or refused in one line."""

import gzip
import hashlib
import json
import os
import threading
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from platformdirs import user_cache_path

from sublayer.errors import DataError
from sublayer.files import lines, parsing, storage
from sublayer.files.arrays import read_description
from sublayer.files.cache_folder import Download, cache_folder, file_digest, replacing, unzip
from sublayer.files.lines import archived_name, decoded, read_lines, text_lines, zstd
from sublayer.files.parsing import parse_json, parse_toml, read_json, read_toml
from sublayer.files.storage import (
    as_typed,
    new_file,
    new_folder,
    remove_abandoned,
    temporary_path,
    write_file,
)
from sublayer.system.terminal import HeardStages, say_nothing, shown_by
from tests.data.releases import write_release, write_zip

CONTENT = b"published text\n" * 1000
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
NUMBERS = st.integers(-(10**39), 10**39) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.booleans() | NUMBERS | TEXTS
VALUES = SCALARS | st.lists(SCALARS, max_size=4) | st.dictionaries(TEXTS, SCALARS, max_size=4)
VALUES |= st.lists(VALUES, max_size=4) | st.dictionaries(TEXTS, VALUES, max_size=4)


def names(folder):
    return sorted(path.name for path in folder.rglob("*"))


def fill(path, *, is_whole=True):
    with new_folder(path) as folder:
        write_release(folder, {"inner/x": b"x"})
        assert not path.exists()
        if not is_whole:
            raise KeyboardInterrupt


def test_a_file_is_replaced_by_a_whole_one_or_left(tmp_path):
    path = tmp_path / ("a" * 250)
    storage.write_file(path, "ä")
    assert path.read_bytes() == "ä".encode()
    storage.write_file(path, b"before")
    with suppress(KeyboardInterrupt), new_file(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"before" and names(tmp_path) == [path.name]


def test_no_link_is_followed(tmp_path, monkeypatch):
    (tmp_path / "theirs.txt").write_text("theirs")
    for name in ("a.json", ".taken"):
        (tmp_path / name).symlink_to("theirs.txt")
    storage.write_file(tmp_path / "a.json", "ours")
    assert (tmp_path / "a.json").read_text() == "ours" and not (tmp_path / "a.json").is_symlink()
    monkeypatch.setattr(storage, "temporary_path", lambda path: tmp_path / ".taken")
    with pytest.raises(FileExistsError):
        storage.write_file(tmp_path / "b.json", "ours")
    assert (tmp_path / "theirs.txt").read_text() == "theirs"


def test_a_folder_appears_when_it_is_filled_or_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path / "a" / "b" / "c", is_whole=False)
    assert names(tmp_path) == []
    fill(tmp_path / "a" / ("b" * 250))
    assert names(tmp_path) == ["a", "b" * 250, "inner", "x"]


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("nowhere")])
def test_a_folder_never_takes_the_place_of_another(tmp_path, make):
    for meanwhile in (make, lambda path: None):
        with pytest.raises(FileExistsError), new_folder(tmp_path / "a"):
            meanwhile(tmp_path / "a")
    assert names(tmp_path) == ["a"]


def test_files_of_killed_processes_are_removed_when_they_are_old(tmp_path):
    old, young = temporary_path(tmp_path / "a"), temporary_path(tmp_path / "b")
    theirs = tmp_path / ".mine.partial"
    young.write_text("young")
    for path in (old, theirs):
        path.mkdir()
        os.utime(path, (0, 0))
    remove_abandoned(tmp_path)
    assert names(tmp_path) == sorted([young.name, theirs.name])


def test_the_cache_folder_is_named_or_the_platforms(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SUBLAYER_CACHE", "")
    assert cache_folder() == user_cache_path("sublayer", False)
    monkeypatch.setenv("SUBLAYER_CACHE", "~/kept")
    assert (cache_folder(), cache_folder(Path("mine"))) == (tmp_path / "kept", Path("mine"))
    monkeypatch.delenv("SUBLAYER_CACHE")
    platforms, earlier = tmp_path / "caches" / "sublayer", tmp_path / ".cache" / "sublayer"
    of_platform = "sublayer.files.cache_folder.user_cache_path"
    monkeypatch.setattr(of_platform, lambda name, _: platforms)
    assert cache_folder() == platforms
    for folder in (earlier, platforms):
        folder.mkdir(parents=True)
        assert cache_folder() == folder


def test_a_file_of_the_cache_is_made_with_its_folder_by_several_at_once(tmp_path):
    path = tmp_path / "deep" / "file"
    with replacing(path) as first, replacing(path) as second:
        assert not path.exists()
        first.write(b"equal")
        second.write(b"equal")
    assert path.read_bytes() == b"equal" and names(path.parent) == ["file"]
    with pytest.raises(DataError, match="cannot write .*set SUBLAYER_CACHE to a folder with room"):
        replacing(path / "below").__enter__()
    with pytest.raises(FileNotFoundError), replacing(path):  # as it is
        (tmp_path / "none").read_bytes()


def test_a_path_below_the_current_folder_is_shown_as_it_is_typed_there(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert as_typed(f"train.en and {here}/train.de") == "train.en and train.de"
    assert as_typed(f"{here}/salt and pepper.txt") == "salt and pepper.txt"
    assert all(as_typed(path) == path for path in (f"{tmp_path}/book.txt", "hub:owner/name"))


def published(url):
    return Download(f"{url}/file.zip", len(CONTENT), "sha256", hashlib.sha256(CONTENT).hexdigest())


def test_a_file_is_fetched_whole_or_refused_unless_it_may_differ(site, tmp_path, capsys):
    folder, url = site
    target = tmp_path / "deep" / "file"
    for where, why in ((url, r"\(File not found\)"), ("http://127.0.0.1:1", ".*refused")):
        with pytest.raises(DataError, match=rf"^file.zip cannot be downloaded from {where}.*{why}"):
            published(where).fetch(target)
    for content in (CONTENT[:-1], b"another text!!\n" * 1000):
        (folder / "file.zip").write_bytes(content)
        with pytest.raises(DataError, match=r"the download of http.*zip is damaged .*try again"):
            published(url).fetch(target)
    assert not target.exists()
    (folder / "file.zip").write_bytes(CONTENT)
    assert published(url).fetch(target) == target
    assert target.read_bytes() == CONTENT
    (folder / "file.zip").write_bytes(b"newer")
    with shown_by(HeardStages(say_nothing, print)):
        replace(published(url), n_bytes=None, may_differ=True).fetch(target)
    assert target.read_bytes() == b"newer"
    assert f"{url}/file.zip has another sha256 than expected" in capsys.readouterr().out


def test_a_download_that_is_cut_off_is_refused(tmp_path):
    class CutOff(BaseHTTPRequestHandler):
        log_message = print

        def do_GET(self):
            self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 10\r\n\r\n1234")

    with ThreadingHTTPServer(("127.0.0.1", 0), CutOff) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        download = published(f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(DataError, match=r"ended after 4 of 10 bytes: try again"):
            replace(download, n_bytes=None, may_differ=True).fetch(tmp_path / "file")
        server.shutdown()
        thread.join()
    assert not (tmp_path / "file").exists()


def test_one_member_is_unzipped_and_checked(tmp_path):
    path, md5 = write_zip(tmp_path / "a.zip", {"text8": CONTENT}), hashlib.md5(CONTENT).hexdigest()
    unzip(path, "text8", tmp_path / "out" / "text8", md5=md5)
    assert (tmp_path / "out" / "text8").read_bytes() == CONTENT
    with pytest.raises(DataError, match="is not a zip file with enwik8"):
        unzip(path, "enwik8", tmp_path / "text8", md5=md5)
    with pytest.raises(DataError, match=r"text8 in .* is not the published file"):
        unzip(path, "text8", tmp_path / "text8", md5="0" * 32)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match="is not a zip file with text8"):
        unzip(path, "text8", tmp_path / "text8", md5=md5)
    assert not (tmp_path / "text8").exists()


def test_lines_are_numbered_and_whole_in_every_form(tmp_path):
    lines = [b"one\n", b"\n", b"two \xff\r\n", os.urandom(1 << 20).replace(b"\n", b"")]
    text = b"".join(lines)
    # pzstd puts frames to be skipped between the others; zstd --long=31 needs a window of 2 GiB.
    skipped = bytes.fromhex("502a4d1804000000") + b"size"

    def pack_zstd(part):
        compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 28})
        return skipped + compressor.compress(part) + compressor.flush()

    for name, pack in (("a", bytes), ("a.gz", gzip.compress), ("a.ZST", pack_zstd)):
        path = tmp_path / name
        packed = pack(text[:5]) + pack(text[5:])
        path.write_bytes(packed)
        assert list(read_lines(path)) == list(enumerate(lines, 1))
        path.write_bytes(b"")
        assert list(read_lines(path)) == []
        for damaged in () if pack is bytes else (packed[:-1], b"plain text"):
            path.write_bytes(damaged)
            with pytest.raises(
                DataError, match=rf"{name} is a damaged (gzip|zstd) file \(.*\): fetch or"
            ):
                list(read_lines(path))
    with pytest.raises(DataError, match=r"gone is not there: name another"):
        list(read_lines(tmp_path / "gone"))
    mark = b"\xef\xbb\xbf"  # no text of the first line
    assert [decoded("a", n, mark + b"one\n") for n in (1, 2)] == ["one\n", "\ufeffone\n"]
    with pytest.raises(DataError, match=r"a, line 1: byte 0xff is not UTF-8"):
        decoded("a", 1, mark + b"\xff")


@given(st.text("abc", max_size=20), st.text("abc", min_size=1, max_size=3))
def test_a_mark_is_found_wherever_a_block_ends(tmp_path_factory, content, mark):
    content, mark = content.encode(), mark.encode()
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_BLOCK_BYTES", 4)
        text = lines.FileText(path)
        assert text.find(mark) == content.find(mark)
        for start in range(len(content)):
            for stop in range(start, len(content) + 1):
                assert text.rfind(mark, start, stop) == content.rfind(mark, start, stop)


def read_all(path):
    with storage.open_file(path) as file:
        return file.read()


@pytest.mark.parametrize("read", [
    lambda path: [*read_lines(path)], lambda path: file_digest(path, path), archived_name,
    read_description, read_all, lines.FileText,
])  # fmt: skip
@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "/dev/tty", "/proc/kmsg"])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path, kind, read):
    path = tmp_path / "a.zip"
    if kind == "pipe":
        os.mkfifo(path)
    elif os.access(kind, os.R_OK):
        path.symlink_to(kind)
    else:
        pytest.skip(f"{kind} cannot be read here")
    if (kind, read) != ("/proc/kmsg", lines.FileText):  # nothing is known before it is read
        with pytest.raises((OSError, DataError)):
            read(path)


def test_lines_of_a_compressed_file_are_held_within_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "_most_bytes", lambda: 5000)
    for name, n_bytes, stop in (("a.gz", 1, 5), ("b.gz", 2000, 2)):
        (tmp_path / name).write_bytes(gzip.compress((b"a" * n_bytes + b"\n") * 9))
        with pytest.raises(
            DataError, match=f"{name} decompresses to more lines .* from line {stop} on"
        ):
            text_lines(tmp_path / name)
        assert text_lines(tmp_path / name, stop - 1) == ["a" * n_bytes] * (stop - 1)
    (tmp_path / "c").write_bytes(b"a\r\n" * 9)
    assert text_lines(tmp_path / "c") == ["a"] * 9


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
@settings(max_examples=50)
def test_values_are_read_as_they_are_written(table):
    assert parse_json(json.dumps(table), "x", DataError) == table
    assert parse_json(json.dumps(table, ensure_ascii=False).encode(), "x", DataError) == table
    assert parse_toml(tomli_w.dumps(table), "x", DataError) == table


@pytest.mark.parametrize("parse, text, why", [
    (parse_json, "[" * 65 + "0" + "]" * 65, "is nested more than 64 deep"),
    (parse_json, "1" * 5000, "holds a number of 5,000 digits"),
    (parse_json, '{"a": NaN}', "holds NaN"),
    (parse_json, "[1e999]", "a value is inf, which is not finite"),
    (parse_json, '{"\\udfff": 1}', "is not Unicode text"),
    (parse_json, '{"a": {"b": 1, "b": 1}}', "has the key b twice in one object"),
    (parse_toml, "a = " + "[" * 1000, "is nested more than 64 deep"),
    (parse_toml, "a = 0x" + "f" * 5000, "a is a number of more than 40 digits"),
    (parse_toml, "[model]\nlr = inf", "model.lr is inf, which is not finite"),
    (parse_toml, "[" + '"a" . ' * 200_000 + "a]", "has a key of more than 32 parts"),
], ids=range(10))  # fmt: skip
def test_hostile_text_is_one_line_of_error(parse, text, why):
    with pytest.raises(DataError) as error:
        parse(text, "some.file", DataError)
    line = str(error.value)
    assert line.startswith("some.file") and why in line
    assert "\n" not in line and len(line) < 200


def test_files_are_limited_in_bytes_and_their_errors_name_them(tmp_path):
    path = tmp_path / "large.json"
    path.write_text("[" + "1, " * 400 + "1]")
    assert len(read_json(path, DataError, max_bytes=path.stat().st_size)) == 401
    with pytest.raises(DataError, match=r"large\.json is larger than the maximum of 1,202 bytes"):
        read_json(path, DataError, max_bytes=path.stat().st_size - 1)
    with pytest.raises(DataError, match=r"large\.json is not a JSON object"):
        parsing.read_json_object(path, DataError)
    path.write_bytes(b"\xef\xbb\xbfa = 1")
    assert read_toml(path, DataError) == {"a": 1}, "editors of Windows begin files with this mark"
    path.write_bytes(b"a = '\xff'")
    with pytest.raises(DataError, match=r"large\.json is not UTF-8 text \(byte 5\)"):
        read_toml(path, DataError)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe cannot be read: it is a pipe or a device"):
        read_json(tmp_path / "pipe", DataError)
    with pytest.raises(DataError, match="cannot be read: it is a folder: name a file"):
        read_json(tmp_path, DataError)


def test_errors_of_the_system_name_the_file_or_folder_that_is_written(tmp_path):
    path = tmp_path / "missing" / "new.csv"
    with pytest.raises(FileNotFoundError) as caught:
        write_file(path, "a\n")
    assert caught.value.filename == str(path)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError) as caught, new_folder(tmp_path / "file" / "new"):
        pass
    assert ".partial" not in str(caught.value.filename)
