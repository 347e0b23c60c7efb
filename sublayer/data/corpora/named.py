"""Named corpora, and the sources that a recipe's paths and corpora stand for."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sublayer.config.texts import INTRINSIC, Sources, source_names
from sublayer.data.corpora.albert_intrinsic import read_passages
from sublayer.data.corpora.lm1b import RELEASE, extract_release, find_release, read_release
from sublayer.data.corpora.published import PublishedFile, PublishedRecords, PublishedRelease
from sublayer.data.corpora.python_docs import python_prose
from sublayer.data.corpora.source import Source
from sublayer.data.text.documents import AS_FILES, Reading, read_documents
from sublayer.data.text.files import is_tar
from sublayer.data.text.hub import HubSet
from sublayer.errors import ConfigError
from sublayer.files.download import Download
from sublayer.files.paths import expanded


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
"""The reader of each corpus of ``sublayer.config.texts.CORPORA``."""
