"""Named corpora, and the sources that a recipe's paths and corpora stand for."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sublayer.config.text.corpora import INTRINSIC, Sources, source_names
from sublayer.data.corpora.albert_intrinsic import read_passages
from sublayer.data.corpora.download import Download, fetch, unzip
from sublayer.data.corpora.lm1b import RELEASE, extract_release, find_release, read_release
from sublayer.data.corpora.python_docs import python_prose
from sublayer.data.text.documents import (
    AS_FILES,
    Reading,
    read_documents,
    read_files,
    read_hub,
    sniffed_kind,
)
from sublayer.data.text.files import Document, FileDocument, is_tar, read_path
from sublayer.data.text.hub import HubSet
from sublayer.data.text.splitting import SplitName
from sublayer.errors import ConfigError, DataError
from sublayer.files.paths import expanded


@dataclass(frozen=True)
class Source:
    """A text of its own: documents to be split, or the splits that its publishers made."""

    name: str
    documents: Sequence[Document] = ()
    """Those to be split; empty where there are ``published`` splits."""
    published: Mapping[SplitName, Sequence[Document]] = field(default_factory=dict)
    """The publishers' splits; empty where they made none."""
    weight: float | None = None
    """How often training draws from it, in proportion to other sources; None: by its size."""


def find_sources(
    path: Sources | None, corpus: Sources | None, cache: Path, reading: Reading = AS_FILES
) -> tuple[Source, ...]:
    """Find every text that ``data.path`` and ``data.corpus`` name, in order.

    A path with the layout of the lm1b release, or its archive, has the published split. With the
    corpus albert-intrinsic, the path names its files. Raises ConfigError if neither names one,
    DataError where one cannot be read.
    """
    if path is not None and INTRINSIC in source_names(corpus):
        return (Source(INTRINSIC, read_passages(source_names(path), cache)),)
    texts = []
    for name, weight in _entries(path):
        source = _read(name, cache, reading)
        texts.append(replace(source, weight=weight))
    for name, weight in _entries(corpus):
        source = CORPORA[name](cache, reading)
        texts.append(replace(source, weight=weight))
    if not texts:
        raise ConfigError(
            f"there is no text: give data.path, or data.corpus as one of {', '.join(CORPORA)}"
        )
    return tuple(texts)


def _entries(sources: Sources | None) -> list[tuple[str, float | None]]:
    if sources is None:
        return []
    if isinstance(sources, dict):
        return list(sources.items())
    if isinstance(sources, str):
        return [(sources, None)]
    return [(name, None) for name in sources]


def _read(name: str, cache: Path, reading: Reading) -> Source:
    path = expanded(name)
    if path.is_file() and is_tar(path):
        path = extract_release(path, cache)
    release = find_release(path)
    if release is not None:
        return Source(name, published=read_release(release, cache))
    return Source(name, read_documents(name, cache, reading))


def _python(cache: Path, reading: Reading) -> Source:
    return Source("python", python_prose(cache))


def _without_path(cache: Path, reading: Reading) -> Source:
    raise ConfigError(
        f"data.corpus = {INTRINSIC} needs data.path: the files of SQuAD and RACE that it reads"
    )


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


CORPORA: dict[str, Callable[[Path, Reading], Source]] = {
    "python": _python,
    # Both: sizes and checksums from mattmahoney.net/dc/textdata.html, and of the archives as
    # served.
    "enwik8": PublishedFile(
        "enwik8",
        100_000_000,
        "a1fa5ffddb56f4953e226637dabbb36a",
        Download(
            "https://mattmahoney.net/dc/enwik8.zip",
            36_445_475,
            "sha256",
            "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
        ),
    ),
    "text8": PublishedFile(
        "text8",
        100_000_000,
        "3bea1919949baf155f99411df5fada7e",
        Download(
            "https://mattmahoney.net/dc/text8.zip",
            31_344_016,
            "sha256",
            "a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232",
        ),
    ),
    "lm1b": PublishedRelease(
        Download(
            f"http://www.statmt.org/lm-benchmark/{RELEASE}.tar.gz",
            1_792_209_805,
            "sha256",
            "01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e",
        )
    ),
    "wikipedia": PublishedRecords("wikipedia", HubSet("wikimedia/wikipedia", "20231101.en")),
    # Its script was retired; the branch holds what the hub made of it.
    "bookcorpus": PublishedRecords(
        "bookcorpus",
        HubSet("bookcorpus/bookcorpus", revision="refs/convert/parquet"),
        are_sentences=True,
        sentence_files=("books_large_p1", "books_large_p2"),
    ),
    "c4": PublishedRecords("c4", HubSet("allenai/c4", "en"), held_out="validation"),
    INTRINSIC: _without_path,
}
"""The reader of each corpus of ``sublayer.config.text.corpora.CORPORA``."""
