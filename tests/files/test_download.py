"""Published files, fetched or unpacked whole, and the lines of files in every form."""

import gzip
import hashlib
import os
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.errors import DataError
from sublayer.files import file_text
from sublayer.files.download import Download, fetch, unzip
from sublayer.files.lines import decoded, read_lines, zstd
from sublayer.system.stage_displays import HeardStages, say_nothing
from sublayer.system.stages import shown_by
from tests.data.releases import write_zip

CONTENT = b"published text\n" * 1000
MD5 = hashlib.md5(CONTENT).hexdigest()


def published(url: str) -> Download:
    return Download(f"{url}/file.zip", len(CONTENT), "sha256", hashlib.sha256(CONTENT).hexdigest())


def test_a_file_is_fetched_whole_or_refused_unless_it_may_differ(site, tmp_path):
    folder, url = site
    target = tmp_path / "deep" / "file"
    for where, why in ((url, r"\(File not found\)"), ("http://127.0.0.1:1", ".*refused")):
        with pytest.raises(DataError, match=rf"^file.zip cannot be downloaded from {where}.*{why}"):
            fetch(published(where), target)
    for content in (CONTENT[:-1], b"another text!!\n" * 1000):
        (folder / "file.zip").write_bytes(content)
        with pytest.raises(DataError, match=r"the download of http.*zip is damaged .*try again"):
            fetch(published(url), target)
    assert not target.exists()
    (folder / "file.zip").write_bytes(CONTENT)
    assert fetch(published(url), target) == target
    assert target.read_bytes() == CONTENT
    (folder / "file.zip").write_bytes(b"newer")
    notes = []
    with shown_by(HeardStages(say_nothing, notes.append)):
        fetch(replace(published(url), n_bytes=None, may_differ=True), target)
    assert target.read_bytes() == b"newer"
    (said,) = notes
    assert f"{url}/file.zip is not the file whose sha256 is known" in said


def test_a_download_that_is_cut_off_is_refused(tmp_path):
    class CutOff(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "10")
            self.end_headers()
            self.wfile.write(b"1234")

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), CutOff) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        download = published(f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(DataError, match=r"ended after 4 of 10 bytes: try again"):
            fetch(replace(download, n_bytes=None, may_differ=True), tmp_path / "file")
        server.shutdown()
        thread.join()
    assert not (tmp_path / "file").exists()


def test_one_member_is_unzipped_and_checked(tmp_path):
    path = write_zip(tmp_path / "a.zip", {"text8": CONTENT, "../evil": b"no"})
    unzip(path, "text8", tmp_path / "out" / "text8", md5=MD5)
    assert (tmp_path / "out" / "text8").read_bytes() == CONTENT
    assert not (tmp_path / "evil").exists()
    with pytest.raises(DataError, match="is not a zip file with enwik8"):
        unzip(path, "enwik8", tmp_path / "text8", md5=MD5)
    with pytest.raises(DataError, match=r"text8 in .* is not the published file"):
        unzip(path, "text8", tmp_path / "text8", md5="0" * 32)
    whole = path.read_bytes()
    for content in (b"", whole[:-30], whole[:50] + b"\xff" * 20 + whole[70:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match="is not a zip file with text8"):
            unzip(path, "text8", tmp_path / "text8", md5=MD5)
    assert not (tmp_path / "text8").exists()


def test_lines_are_numbered_and_whole_in_every_form(tmp_path):
    lines = [b"one\n", b"\n", b"two \xff\r\n", os.urandom(1 << 20).replace(b"\n", b"")]
    text = b"".join(lines)
    # pzstd puts frames to be skipped between the others; zstd --long=31 needs a window of 2 GiB.
    skipped = bytes.fromhex("502a4d1804000000") + b"size"
    long = {zstd.CompressionParameter.window_log: 28}

    def pack_zstd(part):
        compressor = zstd.ZstdCompressor(options=long)
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
            with pytest.raises(DataError, match=rf"{name} is damaged (gzip|zstd) \(.*\): fetch or"):
                list(read_lines(path))
    with pytest.raises(DataError, match=r"cannot read .*gone: No such file"):
        list(read_lines(tmp_path / "gone"))


def test_a_byte_order_mark_is_no_text_of_the_first_line():
    mark = b"\xef\xbb\xbf"
    assert decoded("a", 1, mark + b"one\n") == "one\n"
    assert decoded("a", 2, mark + b"two") == "\ufefftwo"
    with pytest.raises(DataError, match=r"a, line 1: byte 0xff is not UTF-8"):
        decoded("a", 1, mark + b"\xff")


@given(st.text("abc", max_size=20), st.text("abc", min_size=1, max_size=3))
def test_a_mark_is_found_wherever_a_block_ends(tmp_path_factory, content, mark):
    content, mark = content.encode(), mark.encode()
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_text, "_BLOCK_BYTES", 4)
        text = file_text.FileText(path)
        assert text.find(mark) == content.find(mark)
        for start in range(len(content)):
            for stop in range(start, len(content) + 1):
                assert text.rfind(mark, start, stop) == content.rfind(mark, start, stop)
