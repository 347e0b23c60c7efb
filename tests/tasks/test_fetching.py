"""Releases of tasks, downloaded once into the cache from a server of the tests' own."""

import hashlib
import io
import re
import tarfile
import zipfile

import pytest

from sublayer.errors import DataError
from sublayer.files.download import Download
from sublayer.tasks.fetching import cached_folder
from sublayer.tasks.registry import TASKS, find_files, locate_files, read_split
from sublayer.tasks.releases import RELEASES, Release
from tests.tasks.files import write

_TSV = b"sentence\tlabel\nfine\t1\n"


def _zip(members):
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return whole.getvalue()


def _tar(members):
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return whole.getvalue()


def _serve(site, monkeypatch, task, files):
    folder, url = site
    downloads = []
    for name, content in files.items():
        (folder / name).write_bytes(content)
        checksum = hashlib.sha256(content).hexdigest()
        downloads.append(Download(f"{url}/{name}", None, "sha256", checksum, may_differ=True))
    monkeypatch.setitem(RELEASES, task, Release(task, tuple(downloads)))


def test_a_task_is_downloaded_once(site, tmp_path, monkeypatch):
    kept = {"SST-2/train.tsv": _TSV, "SST-2/dev.tsv": _TSV}
    others = ("SST-2/original/dev.tsv", "__MACOSX/._dev.tsv", "../evil.tsv", "SST-2/README.md")
    members = {**kept, **dict.fromkeys(others, b"no")}
    _serve(site, monkeypatch, "sst2", {"SST-2.zip": _zip(members)})
    task, cache = TASKS["sst2"], tmp_path / "cache"
    assert cached_folder(task, cache) is None
    found = locate_files(task, cache=cache)
    assert read_split(task, "dev", found["dev"]).examples[0].label == 1
    files = [path for path in cache.rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == ["dev.tsv", "train.tsv"]
    (site[0] / "SST-2.zip").unlink()
    assert locate_files(task, cache=cache) == found
    assert cached_folder(task, cache) == cache / "tasks" / "sst2"


def test_an_archive_of_tar_is_extracted_too(site, tmp_path, monkeypatch):
    archive = _tar({"SST-2/dev.tsv": _TSV, "/SST-2/dev.tsv": b"no", "SST-2/x.py": b"no"})
    _serve(site, monkeypatch, "sst2", {"SST-2.tar.gz": archive})
    assert list(locate_files(TASKS["sst2"], cache=tmp_path / "cache")) == ["dev"]


@pytest.mark.parametrize("content, message", [
    (b"PK", "SST-2.zip is a damaged archive"),
    (_zip({"README": b"moved"}), "SST-2.zip holds none of the files that it is known for"),
])  # fmt: skip
def test_an_archive_of_no_release_is_refused_and_not_kept(
    site, tmp_path, monkeypatch, content, message
):
    _serve(site, monkeypatch, "sst2", {"SST-2.zip": content})
    with pytest.raises(DataError, match=message):
        locate_files(TASKS["sst2"], cache=tmp_path / "cache")
    assert cached_folder(TASKS["sst2"], tmp_path / "cache") is None


def test_a_refusal_names_the_file_to_fetch_and_how_to_give_it(tmp_path, monkeypatch):
    url = "http://127.0.0.1:1/SST-2.zip"
    download = Download(url, None, "sha256", "0", may_differ=True)
    monkeypatch.setitem(RELEASES, "sst2", Release("sst2", (download,)))
    with pytest.raises(DataError, match=rf"SST-2.zip cannot be .* fetch {url}, .*--data DIR$"):
        locate_files(TASKS["sst2"], cache=tmp_path)
    with pytest.raises(DataError, match=r"Story Cloze is not served for download: .*--data DIR"):
        locate_files(TASKS["story_cloze"], cache=tmp_path)


@pytest.mark.parametrize("name, files", [
    ("mnli", "MNLI/dev_matched.tsv"), ("ax", "AX.tsv"), ("sg_rte", "RTE/train.jsonl"),
    ("race", "RACE/test/middle/1.txt RACE/test/high/1.txt"),
    ("snli", "snli_1.0/snli_1.0_train.jsonl"),
    ("scitail", "SciTailV1.1/tsv_format/scitail_1.0_train.tsv"),
])  # fmt: skip
def test_a_file_of_a_release_is_kept_and_found_in_the_cache(name, files, tmp_path):
    release = RELEASES[name]
    assert all(file.url.startswith("http") and len(file.checksum) == 64 for file in release.files)
    is_packed = release.files[0].url.endswith((".zip", ".tar.gz"))
    content = {"version": "1.1", "data": [], "premise": "A", "hypothesis": "B"}
    written = []
    for path in files.split():
        assert re.fullmatch(release.keeps, path) if is_packed else "/" not in path
        written.append(write(tmp_path / "tasks" / release.folder / path, content))
    folder = cached_folder(TASKS[name], tmp_path)
    assert folder is not None
    (paths,) = find_files(TASKS[name], folder).values()
    assert sorted(paths) == sorted(written)
