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
from tests.breadth import rows

_TSV = b"sentence\tlabel\nfine\t1\n"


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


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


def _serve(site, monkeypatch, task, files, **settings):
    folder, url = site
    downloads = []
    for name, content in files.items():
        (folder / name).write_bytes(content)
        checksum = hashlib.sha256(content).hexdigest()
        downloads.append(Download(f"{url}/{name}", None, "sha256", checksum, may_differ=True))
    monkeypatch.setitem(RELEASES, task, Release(task, tuple(downloads), **settings))


def test_a_task_is_downloaded_once(site, cache, monkeypatch):
    members = {
        "SST-2/train.tsv": _TSV,
        "SST-2/dev.tsv": _TSV,
        "SST-2/original/dev.tsv": b"no",
        "__MACOSX/._dev.tsv": b"no",
        "../evil.tsv": b"no",
        "SST-2/README.md": b"no",
    }
    _serve(site, monkeypatch, "sst2", {"SST-2.zip": _zip(members)})
    task = TASKS["sst2"]
    assert cached_folder(task, cache) is None
    found = locate_files(task, cache=cache)
    assert read_split(task, "dev", found["dev"]).examples[0].label == 1
    files = [path for path in cache.rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == ["dev.tsv", "train.tsv"]
    (site[0] / "SST-2.zip").unlink()
    assert locate_files(task, cache=cache) == found
    assert cached_folder(task, cache) == cache / "tasks" / "sst2"


def test_files_that_are_not_packed_are_kept_as_they_are(site, cache, monkeypatch):
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    files = {
        "msr_paraphrase_train.txt": f"{header}1\t1\t2\tA\tB\n0\t3\t4\tC\tD\n".encode(),
        "msr_paraphrase_test.txt": f"{header}1\t5\t6\tE\tF\n".encode(),
        "mrpc_dev_ids.tsv": b"3\t4\n",
    }
    _serve(site, monkeypatch, "mrpc", files)
    task = TASKS["mrpc"]
    found = locate_files(task, cache=cache)
    sizes = {split: len(read_split(task, split, paths).examples) for split, paths in found.items()}
    assert sizes == {"train": 1, "dev": 1, "test": 1}


def test_an_archive_of_tar_is_extracted_too(site, cache, monkeypatch):
    archive = _tar({"SST-2/dev.tsv": _TSV, "/SST-2/dev.tsv": b"no", "SST-2/x.py": b"no"})
    _serve(site, monkeypatch, "sst2", {"SST-2.tar.gz": archive})
    assert list(locate_files(TASKS["sst2"], cache=cache)) == ["dev"]


@pytest.mark.parametrize(
    "content, message",
    [
        (b"PK", "SST-2.zip is a damaged archive"),
        (_zip({"README": b"moved"}), "SST-2.zip holds none of the files that it is known for"),
    ],
)
def test_what_is_no_release_is_refused_and_not_kept(site, cache, monkeypatch, content, message):
    _serve(site, monkeypatch, "sst2", {"SST-2.zip": content})
    with pytest.raises(DataError, match=message):
        locate_files(TASKS["sst2"], cache=cache)
    assert cached_folder(TASKS["sst2"], cache) is None


def test_without_a_network_it_is_said_what_to_fetch_and_how_to_name_it(cache, monkeypatch):
    url = "http://127.0.0.1:1/SST-2.zip"
    download = Download(url, None, "sha256", "0", may_differ=True)
    monkeypatch.setitem(RELEASES, "sst2", Release("sst2", (download,)))
    with pytest.raises(DataError) as caught:
        locate_files(TASKS["sst2"], cache=cache)
    said = str(caught.value)
    assert said.startswith("SST-2 is not in the cache, and SST-2.zip cannot be downloaded from")
    assert said.endswith(f"fetch {url}, unpack what is packed, and name the folder with --data DIR")


def test_what_is_not_served_is_asked_for(cache):
    with pytest.raises(DataError, match=r"Story Cloze is not served for download: .*--data DIR"):
        locate_files(TASKS["story_cloze"], cache=cache)


def test_a_folder_without_the_task_is_named(tmp_path):
    with pytest.raises(DataError, match=r"has no files of SST-2: `sublayer tasks .*` lists"):
        locate_files(TASKS["sst2"], tmp_path)


_CONTENT = '{"version": "1.1", "data": [], "premise": "A", "hypothesis": "B"}'
_PACKED = {
    "cola": "CoLA/train.tsv",
    "sst2": "SST-2/train.tsv",
    "mrpc": "msr_paraphrase_train.txt",
    "qqp": "QQP/train.tsv",
    "stsb": "STS-B/train.tsv",
    "mnli": "MNLI/dev_matched.tsv",
    "qnli": "QNLI/train.tsv",
    "rte": "RTE/train.tsv",
    "wnli": "WNLI/train.tsv",
    "ax": "AX.tsv",
    "boolq": "BoolQ/train.jsonl",
    "cb": "CB/val.jsonl",
    "copa": "COPA/train.jsonl",
    "multirc": "MultiRC/train.jsonl",
    "record": "ReCoRD/train.jsonl",
    "sg_rte": "RTE/train.jsonl",
    "wic": "WiC/train.jsonl",
    "wsc": "WSC/train.jsonl",
    "axb": "AX-b/AX-b.jsonl",
    "axg": "AX-g/AX-g.jsonl",
    "squad": "train-v1.1.json",
    "squad2": "dev-v2.0.json",
    "race_middle": "RACE/train/middle/1.txt",
    "race_high": "RACE/dev/high/1.txt",
    "race": "RACE/test/middle/1.txt RACE/test/high/1.txt",
    "snli": "snli_1.0/snli_1.0_train.jsonl",
    "scitail": "SciTailV1.1/tsv_format/scitail_1.0_train.tsv",
}
"""Of each release paths that its archive is known to have, or files that are served as they are."""


@pytest.mark.parametrize("name", rows(RELEASES, 6))
def test_what_is_kept_of_a_release_is_found_in_the_cache(name, cache):
    release = RELEASES[name]
    is_packed = release.files[0].url.endswith((".zip", ".tar.gz"))
    files = []
    for path in _PACKED[name].split():
        assert re.fullmatch(release.keeps, path) if is_packed else "/" not in path
        files.append(cache / "tasks" / release.folder / path)
        files[-1].parent.mkdir(parents=True)
        files[-1].write_text(_CONTENT)
    folder = cached_folder(TASKS[name], cache)
    assert folder is not None
    (paths,) = find_files(TASKS[name], folder).values()
    assert sorted(paths) == sorted(files)


def test_every_release_has_an_address_and_a_checksum():
    for release in RELEASES.values():
        for file in release.files:
            assert file.url.startswith("http") and len(file.checksum) == 64
