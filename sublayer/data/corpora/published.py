"""How published corpora are found: files of the user's, the cache, or a download."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sublayer.data.corpora.lm1b import RELEASE, extract_release, find_release, read_release
from sublayer.data.corpora.source import Source
from sublayer.data.text.documents import AS_FILES, Reading, read_files, read_hub, sniffed_kind
from sublayer.data.text.files import Document, FileDocument, read_path
from sublayer.data.text.hub import HubSet
from sublayer.errors import DataError
from sublayer.files.download import Download, fetch, unzip
from sublayer.files.paths import expanded


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
        for folder in _folders(cache):
            for path in (folder / self.name, folder / self.name / self.name):
                if path.is_file():
                    return self._checked(path)
            archive = folder / f"{self.name}.zip"
            if archive.is_file():
                return unzip(archive, self.name, target, md5=self.md5)
        archive = _downloaded(self.archive, target.with_name(f"{self.name}.zip"), self.name)
        unzip(archive, self.name, target, md5=self.md5)
        archive.unlink()
        return target

    def _checked(self, path: Path) -> Path:
        n_bytes = path.stat().st_size
        if n_bytes != self.n_bytes:
            raise DataError(
                f"{path} has {n_bytes:,} bytes, {self.name} has {self.n_bytes:,}: "
                "put the whole file there, or name a part of it in data.path"
            )
        return path


@dataclass(frozen=True)
class PublishedRelease:
    """The lm1b release: its folder, or the archive that holds it."""

    archive: Download

    def __call__(self, cache: Path, reading: Reading = AS_FILES) -> Source:
        """Find the release in SUBLAYER_DATA or the cache, or download it; else raise DataError."""
        return Source("lm1b", published=read_release(self._find(cache), cache))

    def _find(self, cache: Path) -> Path:
        name = f"{RELEASE}.tar.gz"
        for folder in _folders(cache):
            release = find_release(folder) or find_release(folder / "lm1b")
            if release is not None:
                return release
            if (folder / name).is_file():
                return extract_release(folder / name, cache)
        archive = _downloaded(self.archive, cache / "corpora" / name, name)
        return extract_release(archive, cache)


@dataclass(frozen=True)
class PublishedRecords:
    """A corpus of many documents in many files: its folder, or its data set of the hub.

    A file is read by what it holds: Parquet, JSON lines, WikiExtractor's articles, else text that
    is one document, or as ``data.documents`` says.
    """

    name: str
    hub: HubSet
    are_sentences: bool = False
    """Whether each record is a sentence; the corpus does not say where their documents end, so
    1,000 in a row make one."""
    sentence_files: tuple[str, ...] = ()
    """Files, by what is before the first dot of their names, each line of which is a sentence."""

    held_out: str | None = None
    """The split of the data set that is held out, which its files have in their names, between
    the corpus and a dot: ``c4-validation.00000-of-00008.json.gz``; None: it has none."""

    def __call__(self, cache: Path, reading: Reading = AS_FILES) -> Source:
        """Find the folder in SUBLAYER_DATA or the cache, or fetch the data set.

        What is held out validates with its first half and tests with its second. Raises DataError
        where there is neither folder nor network, or the folder lacks one of the two.
        """
        folders = [folder / self.name for folder in _folders(cache)]
        for folder in folders:
            if folder.is_dir():
                return self._of_folder(folder, cache, reading)
        try:
            return self._of_hub(cache, reading)
        except DataError as error:
            raise DataError(
                f"data.corpus = {self.name}: {error}; or put the published files into {folders[0]}"
            ) from error

    def _of_folder(self, folder: Path, cache: Path, reading: Reading) -> Source:
        name = str(folder)
        files = read_path(name, cache, has_parquet=reading.rule in (None, "json"))
        if self.held_out is None:
            return Source(self.name, self._read(name, files, cache, reading))
        marked = f"{self.name}-{self.held_out}."
        held_out = [file for file in files if file.path.name.startswith(marked)]
        training = [file for file in files if not file.path.name.startswith(marked)]
        for part, pattern in ((held_out, f"{marked}*"), (training, f"{self.name}-train.*")):
            if not part:
                raise DataError(
                    f"{folder} has no {pattern}, and {self.name} is scored on its own split: "
                    "put its files there too, or name the folder in data.path"
                )
        return self._divided(
            self._read(name, training, cache, reading),
            self._read(f"{marked}* of {folder}", held_out, cache, reading),
        )

    def _of_hub(self, cache: Path, reading: Reading) -> Source:
        training = read_hub(self.hub, cache, reading, in_runs=self.are_sentences)
        if self.held_out is None:
            return Source(self.name, training)
        return self._divided(
            training, read_hub(replace(self.hub, split=self.held_out), cache, reading)
        )

    def _read(
        self, name: str, files: Sequence[FileDocument], cache: Path, reading: Reading
    ) -> Sequence[Document]:
        kinds = [reading.rule or self._kind(file.path) for file in files]
        return read_files(name, files, kinds, cache, reading)

    def _divided(self, training: Sequence[Document], held_out: Sequence[Document]) -> Source:
        if len(held_out) < 2:
            raise DataError(
                f"the {self.held_out} split of {self.name} has one document: "
                "validation and test need one each"
            )
        half = len(held_out) // 2
        return Source(
            self.name,
            published={"train": training, "valid": held_out[:half], "test": held_out[half:]},
        )

    def _kind(self, path: Path) -> str:
        kind = sniffed_kind(path)
        if self.are_sentences and kind in ("json", "parquet"):
            return f"{kind} runs"
        return "line runs" if path.name.partition(".")[0] in self.sentence_files else kind


def _folders(cache: Path) -> list[Path]:
    folders = [cache / "corpora"]
    named = os.environ.get("SUBLAYER_DATA")
    if named:
        folders.insert(0, expanded(named))
    return folders


def _downloaded(download: Download, target: Path, wanted: str) -> Path:
    try:
        return fetch(download, target)
    except DataError as error:
        folder = os.environ.get("SUBLAYER_DATA") or target.parent
        raise DataError(f"{error}: fetch it elsewhere and put {wanted} into {folder}") from error
