"""Published corpora: users' files, the cache, or downloads; the 1 Billion Word Benchmark.

The benchmark as released: 99 training and 50 held-out files of tokenised sentences. Source: Chelba
et al. 2013; the archive 1-billion-word-language-modeling-benchmark-r13output.tar.gz.
"""

import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from sublayer.data.text.documents import (
    AS_FILES,
    Document,
    Reading,
    read_files,
    read_hub,
    sniffed_kind,
)
from sublayer.data.text.files import FileDocument, read_path
from sublayer.data.text.records import HubSet
from sublayer.data.text.splitting import SplitName
from sublayer.errors import DataError
from sublayer.files.cache_folder import content_key, corpus_folders
from sublayer.files.download import Download, fetch, unzip
from sublayer.files.storage import new_folder, resolved


@dataclass(frozen=True)
class Source:
    """A text source: documents to split, or published splits."""

    name: str
    documents: Sequence[Document] = ()
    """Those to be split; empty where there are ``published`` splits."""
    published: Mapping[SplitName, Sequence[Document]] = field(default_factory=dict)
    """The publishers' splits; empty where they made none."""
    weight: float | None = None
    """Weight of it in training's draws, in proportion to other sources; None: by its size."""


RELEASE = "1-billion-word-language-modeling-benchmark-r13output"
TRAINING = "training-monolingual.tokenized.shuffled"
HELD_OUT = "heldout-monolingual.tokenized.shuffled"

_TEST = "news.en.heldout-00000-"
_NAMES = {
    TRAINING: re.compile(r"news\.en-\d{5}-of-\d{5}"),
    HELD_OUT: re.compile(r"news\.en\.heldout-\d{5}-of-\d{5}"),
}


def find_release(path: Path) -> Path | None:
    """Return the folder of the release, ``path`` or directly below it; otherwise None.

    It has ``TRAINING`` and ``HELD_OUT``.
    """
    for folder in (path, path / RELEASE):
        if (folder / TRAINING).is_dir() and (folder / HELD_OUT).is_dir():
            return folder
    return None


def read_release(folder: Path, cache: Path) -> dict[SplitName, tuple[FileDocument, ...]]:
    """Return the published split.

    That is the training files, held-out file 0 for test, the other held-out files for validation.
    Raises DataError where files of any of the three are missing.
    """
    files = {
        name: [path for path in sorted((folder / name).iterdir()) if pattern.fullmatch(path.name)]
        for name, pattern in _NAMES.items()
    }
    held_out = files[HELD_OUT]
    splits: dict[SplitName, list[Path]] = {
        "train": files[TRAINING],
        "valid": [path for path in held_out if not path.name.startswith(_TEST)],
        "test": [path for path in held_out if path.name.startswith(_TEST)],
    }
    for split, paths in splits.items():
        if not paths:
            raise DataError(
                f"{folder} lacks the {split} files of lm1b: "
                f"extract {RELEASE}.tar.gz again, all of it"
            )
    return {
        split: tuple(FileDocument(path, cache) for path in paths) for split, paths in splits.items()
    }


def extract_release(archive: Path, cache: Path) -> Path:
    """Extract the release's files from its archive into the cache folder, once.

    Returns the folder; an archive of the same path, size and modification time is extracted once.
    Nothing is written outside the folder.

    Raises DataError if the archive is damaged or is not the release, or the folder cannot be
    written.
    """
    status = archive.stat()
    key = content_key(str(resolved(archive)), status.st_size, status.st_mtime_ns)
    folder = cache / "corpora" / f"lm1b-{key[:16]}"
    if folder.is_dir():
        return folder
    try:
        with new_folder(folder) as unfinished:
            _extract(archive, unfinished)
            if find_release(unfinished) is None:
                raise DataError(
                    f"{archive} is an archive and not the lm1b release: "
                    "unpack it and name its text files"
                )
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} is a damaged archive ({error}): fetch it again") from error
    except OSError as error:
        if not folder.is_dir():
            raise DataError(
                f"cannot extract {archive} to {folder}: {error.strerror or error}"
            ) from error
    return folder


def _extract(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as opened:
        for member in opened:
            path = PurePosixPath(member.name)
            pattern = _NAMES.get(path.parent.name)
            if pattern is None or not pattern.fullmatch(path.name) or not member.isfile():
                continue
            source = opened.extractfile(member)
            assert source is not None, "a file has content"
            # Named by the two matched names, never by the archive's path.
            (target / path.parent.name).mkdir(exist_ok=True)
            with (target / path.parent.name / path.name).open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)


@dataclass(frozen=True)
class PublishedFile:
    """A corpus of one file, published as a zip file."""

    name: str
    """Of the file in the archive, and of the corpus."""
    n_bytes: int
    """Of the file, not of the archive; so is ``md5``."""
    md5: str
    archive: Download

    def __call__(self, cache: Path, reading: Reading = AS_FILES) -> Source:
        """Find the file in SUBLAYER_DATA or the cache, or download it; else raise DataError."""
        return Source(self.name, (FileDocument(self._find(cache), cache),))

    def _find(self, cache: Path) -> Path:
        target = cache / "corpora" / self.name
        for folder in corpus_folders(cache):
            for path in (folder / self.name, folder / self.name / self.name):
                if not path.is_file():
                    continue
                if (n_bytes := path.stat().st_size) != self.n_bytes:
                    raise DataError(
                        f"{path} has {n_bytes:,} bytes, {self.name} has {self.n_bytes:,}: put the "
                        "whole file there, or name a part of it in data.path"
                    )
                return path
            archive = folder / f"{self.name}.zip"
            if archive.is_file():
                return unzip(archive, self.name, target, md5=self.md5)
        archive = _downloaded(self.archive, target.with_name(f"{self.name}.zip"), self.name)
        unzip(archive, self.name, target, md5=self.md5)
        archive.unlink()
        return target


@dataclass(frozen=True)
class PublishedRelease:
    """The lm1b release: its folder, or the archive that holds it."""

    archive: Download

    def __call__(self, cache: Path, reading: Reading = AS_FILES) -> Source:
        """Find the release in SUBLAYER_DATA or the cache, or download it; else raise DataError."""
        return Source("lm1b", published=read_release(self._find(cache), cache))

    def _find(self, cache: Path) -> Path:
        name = f"{RELEASE}.tar.gz"
        for folder in corpus_folders(cache):
            release = find_release(folder) or find_release(folder / "lm1b")
            if release is not None:
                return release
            if (folder / name).is_file():
                return extract_release(folder / name, cache)
        archive = _downloaded(self.archive, cache / "corpora" / name, name)
        return extract_release(archive, cache)


@dataclass(frozen=True)
class PublishedRecords:
    """A corpus of many documents in many files: a folder, or a data set of the hub.

    A file is read by its format: Parquet, JSON lines, WikiExtractor's articles, else text that is
    one document, or as ``data.documents`` says.
    """

    name: str
    hub: HubSet
    are_sentences: bool = False
    """True where each record is a sentence; the corpus does not say where their documents end, so
    1,000 in a row make one."""
    sentence_files: tuple[str, ...] = ()
    """Files, by the part of their names before the first dot, each line of which is a sentence."""

    held_out: str | None = None
    """The split of the data set that is held out, which its files have in their names, between
    the corpus and a dot: ``c4-validation.00000-of-00008.json.gz``; None: it has none."""

    def __call__(self, cache: Path, reading: Reading = AS_FILES) -> Source:
        """Find the folder in SUBLAYER_DATA or the cache, or fetch the data set.

        The first half of the held-out split is for validation, its second for the test. Raises
        DataError where there is neither folder nor network, or the folder lacks one of the two.
        """
        folders = [folder / self.name for folder in corpus_folders(cache)]
        folder = next(filter(Path.is_dir, folders), None)
        held_out: Sequence[Document] = ()
        if folder is not None:
            name = str(folder)
            files = read_path(name, cache, has_parquet=reading.has_parquet)
            marked = f"{self.name}-{self.held_out}."
            apart = [file for file in files if file.path.name.startswith(marked)]
            rest = [file for file in files if file not in apart]
            if self.held_out is not None:
                for part, pattern in ((apart, f"{marked}*"), (rest, f"{self.name}-train.*")):
                    if not part:
                        raise DataError(
                            f"{folder} has no {pattern}, and {self.name} is scored on its own "
                            "split: put its files there too, or name the folder in data.path"
                        )
                held_out = self._read(f"{marked}* of {folder}", apart, cache, reading)
            training = self._read(name, rest, cache, reading)
        else:
            try:
                training = read_hub(self.hub, cache, reading, in_runs=self.are_sentences)
                if self.held_out is not None:
                    held_out = read_hub(replace(self.hub, split=self.held_out), cache, reading)
            except DataError as error:
                raise DataError(
                    f"data.corpus = {self.name}: {error}; or put the published files into "
                    f"{folders[0]}"
                ) from error
        if self.held_out is None:
            return Source(self.name, training)
        if len(held_out) < 2:
            raise DataError(
                f"the {self.held_out} split of {self.name} has one document: "
                "validation and test need one each"
            )
        half = len(held_out) // 2
        splits: dict[SplitName, Sequence[Document]] = {
            "train": training,
            "valid": held_out[:half],
            "test": held_out[half:],
        }
        return Source(self.name, published=splits)

    def _read(
        self, name: str, files: Sequence[FileDocument], cache: Path, reading: Reading
    ) -> Sequence[Document]:
        kinds = [reading.rule or self._kind(file.path) for file in files]
        return read_files(name, files, kinds, cache, reading)

    def _kind(self, path: Path) -> str:
        kind = sniffed_kind(path)
        if self.are_sentences and kind in ("json", "parquet"):
            return f"{kind} runs"
        return "line runs" if path.name.partition(".")[0] in self.sentence_files else kind


def _downloaded(download: Download, target: Path, wanted: str) -> Path:
    try:
        return fetch(download, target)
    except DataError as error:
        folder = os.environ.get("SUBLAYER_DATA") or target.parent
        raise DataError(f"{error}: fetch it elsewhere and put {wanted} into {folder}") from error
