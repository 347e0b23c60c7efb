"""Addresses of the files of tasks, with checksums, and the cache of downloads.

Source of addresses and sums: huggingface/datasets at 040102f, ``dataset_infos.json`` of glue,
super_glue, squad, squad_v2, snli, race and scitail.
"""

import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from sublayer.errors import DataError
from sublayer.files.cache_folder import cache_folder
from sublayer.files.download import Download, fetch
from sublayer.files.storage import new_folder, remove_abandoned
from sublayer.system.stages import stage
from sublayer.tasks.task import Task

_GLUE = "https://dl.fbaipublicfiles.com/glue/data/"
_SENTEVAL = "https://dl.fbaipublicfiles.com/senteval/senteval_data/"
_SUPERGLUE = "https://dl.fbaipublicfiles.com/glue/superglue/data/v2/"
_SQUAD = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"


@dataclass(frozen=True)
class Release:
    """The files that a task is published in; several tasks may share them."""

    folder: str
    """Folder in the cache, below the folder of all tasks."""
    files: tuple[Download, ...]
    keeps: str = r"[^/]+/[^/]+\.(tsv|jsonl)"
    """A pattern of the paths in an archive that are kept."""


def _release(folder: str, files: Mapping[str, str], **keeps: str) -> Release:
    """Return the release of files with an address and a checksum each."""
    # The sums are of one time: a mirror's archive, or a mended one, may have another.
    downloads = [Download(url, None, "sha256", sha, may_differ=True) for url, sha in files.items()]
    return Release(folder, tuple(downloads), **keeps)


_OF_SUITES = {
    _GLUE: {
        "cola": ("CoLA.zip",
            "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff"),
        "sst2": ("SST-2.zip",
            "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa"),
        "qqp": ("QQP-clean.zip",
            "40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0"),
        "stsb": ("STS-B.zip",
            "e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85"),
        "mnli": ("MNLI.zip",
            "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633"),
        "qnli": ("QNLIv2.zip",
            "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5"),
        "rte": ("RTE.zip",
            "6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee"),
        "wnli": ("WNLI.zip",
            "ae0e8e4d16f4d46d4a0a566ec7ecceccfd3fbfaa4a7a4b4e02848c0f2561ac46"),
        "ax": ("AX.tsv",
            "0e13510b1bb14436ff7e2ee82338f0efb0133ecf2e73507a697dc210db3f05fd"),
    },
    _SUPERGLUE: {
        "boolq": ("BoolQ.zip",
            "853fbe7922f70c59629f06a39e8d9ca440c3d740e760fd3b87a5ddf3dcba2436"),
        "cb": ("CB.zip",
            "8d641383298d54554066ba1c93f56ae7410af75df621b90c63028806bbbbb535"),
        "copa": ("COPA.zip",
            "405906cddac74bc1e1ce8220f1107d1025b66a25ef10149d91b10bb30651125f"),
        "multirc": ("MultiRC.zip",
            "b3cd440856e72eb166b2edcd37b798455f1ebd51f2c3de64c0c2a4e1971d2737"),
        "record": ("ReCoRD.zip",
            "30c7b651ab21b8bf8fab986495cd1084333010e040548f861b839eec0044ac18"),
        "sg_rte": ("RTE.zip",
            "6310aab3f000424c9d0318a1ff20692e07c7f4aa15e8f17a5972ea0a35c398b9"),
        "wic": ("WiC.zip",
            "ee7e67f4ae9eafbf533780faa198e62167f3cda54256cdf261877be3c0e90900"),
        "wsc": ("WSC.zip",
            "2ed6dfa94556b4a128ff0441efe365b2e883124e7e6aa00fb8d3a6cb1fd520a9"),
        "axb": ("AX-b.zip",
            "43b45c55a273575c58a33cd68f10a971f83daa3aa223bfbc4077b92fbdf960b3"),
        "axg": ("AX-g.zip",
            "2d4e00d3a7d23d2c3787ee4c1382cc81a72cb05a76fc9d78d142949247ed61b9"),
    },
}  # fmt: skip
"""By the address of a suite and the name of a task: its file."""
RELEASES: dict[str, Release] = {
    **{
        name: _release(name, {f"{base}{file}": sha256})
        for base, files in _OF_SUITES.items()
        for name, (file, sha256) in files.items()
    },
    "mrpc": _release("mrpc", {
        _SENTEVAL + "msr_paraphrase_train.txt":
            "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89",
        _SENTEVAL + "msr_paraphrase_test.txt":
            "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784",
        _GLUE + "mrpc_dev_ids.tsv":
            "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7",
    }),
    "squad": _release("squad", {
        _SQUAD + "train-v1.1.json":
            "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
        _SQUAD + "dev-v1.1.json":
            "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
    }),
    "squad2": _release("squad2", {
        _SQUAD + "train-v2.0.json":
            "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002",
        _SQUAD + "dev-v2.0.json":
            "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8",
    }),
    "snli": _release("snli", {
        "https://nlp.stanford.edu/projects/snli/snli_1.0.zip":
            "afb3d70a5af5d8de0d9d81e2637e0fb8c22d1235c2749d83125ca43dab0dbd3e",
    }),
    "scitail": _release("scitail", {
        "http://data.allenai.org.s3.amazonaws.com/downloads/SciTailV1.1.zip":
            "3fccd37350a94ca280b75998568df85fc2fc62843a3198d644fcbf858e6943d5",
    }, keeps=r"[^/]+/tsv_format/[^/]+\.tsv"),
    **dict.fromkeys(("race_middle", "race_high", "race"), _release("race", {
        "http://www.cs.cmu.edu/~glai1/data/race/RACE.tar.gz":
            "b2769cc9fdc5c546a693300eb9a966cec6870bd349fbc44ed5225f8ad33006e5",
    }, keeps=r"[^/]+/(train|dev|test)/(middle|high)/[^/]+\.txt")),
}  # fmt: skip
"""By the names of tasks; releases missing here are served to nobody without asking."""


_ARCHIVES = (".zip", ".tar.gz")
_MOST_BYTES = 8 << 30
_BLOCK_BYTES = 1 << 20
_Member = tuple[str, int, IO[bytes]]


def cached_folder(task: Task, cache: Path | None = None) -> Path | None:
    """Return the folder of a task's files in the cache; None where there is none."""
    release = RELEASES.get(task.name)
    if release is None:
        return None
    folder = _folder(release, cache)
    return folder if folder.is_dir() else None


def fetched_folder(task: Task, cache: Path | None = None) -> Path:
    """Return the folder of a task's files in the cache, downloaded where they are not there.

    Raises DataError, with what to fetch and how to name it, where that is not possible.
    """
    release = RELEASES.get(task.name)
    if release is None:
        raise DataError(
            f"{task.title} is not served for download: name the folder of its files (finetune "
            "--data DIR, evaluate --path DIR)"
        )
    folder = _folder(release, cache)
    if folder.is_dir():
        return folder
    try:
        _fetch(release, folder)
    except DataError as error:
        urls = ", ".join(file.url for file in release.files)
        raise DataError(
            f"{task.title} is not in the cache, and {error}. By hand: fetch {urls}, unpack what is "
            "packed, and name the folder (finetune --data DIR, evaluate --path DIR)"
        ) from error
    return folder


def _folder(release: Release, cache: Path | None) -> Path:
    return cache_folder(cache) / "tasks" / release.folder


def _fetch(release: Release, folder: Path) -> None:
    try:
        remove_abandoned(folder.parent)
        with new_folder(folder) as unfinished:
            for download in release.files:
                name = download.url.rpartition("/")[2]
                path = fetch(download, unfinished / name)
                if name.endswith(_ARCHIVES):
                    _extract(path, release.keeps, unfinished)
                    path.unlink()
    except OSError as error:
        if not folder.is_dir():  # that is, no other process was quicker
            raise DataError(f"cannot write {folder}: {error.strerror or error}") from error


def _extract(archive: Path, keeps: str, target: Path) -> None:
    """Extract the files of an archive that are wanted; raise DataError where there are none."""
    n_files = 0
    n_bytes = 0
    try:
        with stage(f"extracting {archive.name}"):
            for name, size, content in _members(archive):
                parts = PurePosixPath(name).parts
                if not re.fullmatch(keeps, name) or any(part[0] in "._/" for part in parts):
                    continue
                n_files += 1
                n_bytes += size
                if n_bytes > _MOST_BYTES:
                    raise DataError(f"{archive.name} becomes more than {_MOST_BYTES >> 30} GiB")
                path = target.joinpath(*parts)
                path.parent.mkdir(parents=True, exist_ok=True)
                with content, path.open("xb") as file:
                    shutil.copyfileobj(content, file, _BLOCK_BYTES)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, RuntimeError) as error:
        raise DataError(f"{archive.name} is a damaged archive ({error})") from error
    if not n_files:
        raise DataError(f"{archive.name} holds none of the files that it is known for")


def _members(archive: Path) -> Iterator[_Member]:
    """Open the files of an archive, one after another, with their names and sizes."""
    if archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as packed:
            for member in packed.infolist():
                if not member.is_dir():
                    yield member.filename, member.file_size, packed.open(member)
        return
    with tarfile.open(archive) as tar:
        for entry in tar:
            content = tar.extractfile(entry) if entry.isfile() else None
            if content is not None:
                yield entry.name, entry.size, content
