import hashlib
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sublayer.errors import DataError
from sublayer.files.download import Download, fetch, unzip
from sublayer.system.stage_displays import HeardStages, say_nothing
from sublayer.system.stages import shown_by
from tests.data.corpora.releases import write_zip

CONTENT = b"published text\n" * 1000


def published(url: str, content: bytes = CONTENT) -> Download:
    return Download(f"{url}/file.zip", len(content), "sha256", hashlib.sha256(content).hexdigest())


def test_a_file_is_fetched_and_checked(site, tmp_path):
    folder, url = site
    (folder / "file.zip").write_bytes(CONTENT)
    target = tmp_path / "deep" / "file"
    assert fetch(published(url), target) == target
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("content", [CONTENT[:-1], b"another" * 500])
def test_what_is_not_the_published_file_is_refused_and_not_kept(site, tmp_path, content):
    folder, url = site
    (folder / "file.zip").write_bytes(content)
    with pytest.raises(DataError, match=r"the download of http.*file.zip is damaged .*try again"):
        fetch(published(url), tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_a_file_that_may_differ_is_kept_with_a_note(site, tmp_path):
    folder, url = site
    (folder / "file.zip").write_bytes(b"newer")
    download = replace(published(url), n_bytes=None, may_differ=True)
    notes = []
    with shown_by(HeardStages(say_nothing, notes.append)):
        fetch(download, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"newer"
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
        download = replace(
            published(f"http://127.0.0.1:{server.server_port}"), n_bytes=None, may_differ=True
        )
        with pytest.raises(DataError, match=r"ended after 4 of 10 bytes: try again"):
            fetch(download, tmp_path / "file")
        server.shutdown()
        thread.join()
    assert not (tmp_path / "file").exists()


def test_a_missing_file_and_a_missing_network_are_named(site, tmp_path):
    _, url = site
    with pytest.raises(
        DataError, match=r"file.zip cannot be downloaded from http.*\(File not found\)"
    ):
        fetch(published(url), tmp_path / "file")
    with pytest.raises(
        DataError, match=r"file.zip cannot be downloaded from http://127.0.0.1:1"
    ) as raised:
        fetch(published("http://127.0.0.1:1"), tmp_path / "file")
    assert "\n" not in str(raised.value)


def test_one_member_is_unzipped_and_checked(tmp_path):
    path = write_zip(tmp_path / "a.zip", {"text8": CONTENT, "../evil": b"no"})
    unzip(path, "text8", tmp_path / "out" / "text8", md5=hashlib.md5(CONTENT).hexdigest())
    assert (tmp_path / "out" / "text8").read_bytes() == CONTENT
    assert not (tmp_path / "evil").exists()


def test_a_damaged_archive_is_named(tmp_path):
    whole = write_zip(tmp_path / "a.zip", {"text8": CONTENT}).read_bytes()
    cases = {
        "is not a zip file with text8": [
            b"",
            b"PK",
            whole[:-30],
            whole[:50] + b"\xff" * 20 + whole[70:],
        ]
    }
    for message, contents in cases.items():
        for content in contents:
            (tmp_path / "b.zip").write_bytes(content)
            with pytest.raises(DataError, match=message):
                unzip(tmp_path / "b.zip", "text8", tmp_path / "text8", md5="0" * 32)
    with pytest.raises(DataError, match="is not a zip file with enwik8"):
        unzip(tmp_path / "a.zip", "enwik8", tmp_path / "enwik8", md5="0" * 32)
    with pytest.raises(DataError, match=r"text8 in .* is not the published file"):
        unzip(tmp_path / "a.zip", "text8", tmp_path / "text8", md5="0" * 32)
    assert not (tmp_path / "text8").exists()


def test_progress_is_the_stage_that_is_shown(site, tmp_path, capsys):
    folder, url = site
    (folder / "file.zip").write_bytes(CONTENT)
    heard = []

    class Told(HeardStages):
        """Keep what a stage is changed to, at once."""

        def change(self, stage, text, fraction=None):
            heard.append(text)
            super().change(stage, text, fraction)

    with shown_by(Told(say_nothing, say_nothing)):
        fetch(published(url), tmp_path / "file")
    assert capsys.readouterr().out == ""
    assert heard == ["downloading file.zip: 0 of 0 MB"]
