"""Parallel corpora by name, read from their publishers' files, and which lines form each split.

Sources: fairseq's ``prepare-iwslt14.sh`` and ``prepare-wmt14en2de.sh`` as Macaron Net released
them. A departure: the entities of XML (``&amp;``) are read as what they stand for.
"""

import html
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from sublayer.data.parallel.files import Pair, line_pairs
from sublayer.data.text.files import FileDocument, read_unchanged
from sublayer.data.text.splitting import SplitName
from sublayer.errors import ConfigError, DataError
from sublayer.files.lines import PACKED, decoded, read_lines
from sublayer.files.paths import expanded

_LEFT_OUT = ("<url>", "<talkid>", "<keywords>")
_TAGS = re.compile(r"</?(?:title|description)>")
_SEGMENT = re.compile(r"""<seg id="?[^">]*"?>\s*(.*?)\s*</seg>""", re.IGNORECASE)
_PACKED = ("", *PACKED)


@dataclass(frozen=True)
class Files:
    """The files of a split for a language pair, and which of their pairs it has."""

    names: tuple[tuple[str, str], ...]
    """Those of source and target, where ``{l}`` stands for the language of each."""
    read: Callable[[Path, Path], Iterator[Pair]]
    """Reads the pairs of two files."""
    every: int | None = None
    """Of the pairs that the filters leave, each n-th (from 1) is held out; None: none is."""
    takes_nth: bool = False
    """Whether the split has the pairs that are held out, or all but those."""

    def takes(self, number: int) -> bool:
        """Return whether the split has filtered pair ``number``, from 1."""
        if self.every is None:
            return True
        is_nth = number % self.every == 0
        return is_nth == self.takes_nth


@dataclass(frozen=True)
class ParallelCorpus:
    """A corpus: its languages in its publisher's order, its URL, and the files of each split."""

    languages: tuple[str, str]
    url: str
    splits: Mapping[SplitName, Files]
    counts: Mapping[SplitName, int]
    """Pairs that each split has with its papers' settings, as far as they are known."""


@dataclass(frozen=True)
class CorpusPairs:
    """The pairs of a corpus' split."""

    identity: tuple[str, ...]
    """The corpus, the split and the files' checksums: part of the cache's key."""
    read: Callable[[], Iterator[Pair]]
    """Reads all pairs of the files, before the filters and the rule of the split."""
    files: Files
    count: int | None
    """Pairs that the split has in its papers; None: not known."""


def find_corpus(name: str, split: SplitName, source: str, target: str, cache: Path) -> CorpusPairs:
    """Find a split's files in folder ``name`` of SUBLAYER_DATA or of the cache's corpora.

    They may lie at any depth, plain, gzip or zstd. Either language may be the source.

    Raises ConfigError for languages that the corpus has not, DataError where a file is missing.
    """
    corpus = PARALLEL_CORPORA[name]
    if {source, target} != set(corpus.languages):
        first, second = corpus.languages
        raise ConfigError(
            f"data.corpus = {name} has {first} and {second}, not {source} and {target}"
        )
    files = corpus.splits[split]
    folder = _folder(name, corpus, cache)
    documents: list[FileDocument] = []
    readers = []
    for left, right in files.names:
        source_path = _file(folder, left.format(l=source), corpus)
        target_path = _file(folder, right.format(l=target), corpus)
        documents += [FileDocument(source_path, cache), FileDocument(target_path, cache)]
        readers.append(partial(files.read, source_path, target_path))
    return CorpusPairs(
        identity=(name, split, *(document.digest() for document in documents)),
        read=partial(read_unchanged, documents, partial(_read_all, readers)),
        files=files,
        count=corpus.counts.get(split),
    )


def tagged_lines(source: Path, target: Path) -> Iterator[Pair]:
    """Read IWSLT's training files without lines of metadata; titles and descriptions lose tags.

    Raises DataError as ``line_pairs`` does. Source: fairseq, ``prepare-iwslt14.sh``.
    """
    for line, left, right in line_pairs(source, target):
        if any(tag in left or tag in right for tag in _LEFT_OUT):
            continue
        source_text = _TAGS.sub("", left).strip()
        target_text = _TAGS.sub("", right).strip()
        yield line, source_text, target_text


def segments(source: Path, target: Path) -> Iterator[Pair]:
    """Read the segments of two XML or SGML files, in order; raise DataError if counts differ.

    Entities are read as what they stand for, and a right single quotation mark as an apostrophe.
    """
    sources = list(_segments(source))
    targets = list(_segments(target))
    if len(sources) != len(targets):
        raise DataError(
            f"{source} has {len(sources):,} segments and {target} has {len(targets):,}: "
            "fetch them again"
        )
    for (line, left), (_, right) in zip(sources, targets, strict=True):
        yield line, left, right


def _segments(path: Path) -> Iterator[tuple[int, str]]:
    for line, data in read_lines(path):
        for match in _SEGMENT.finditer(decoded(path, line, data)):
            text = html.unescape(match[1])
            yield line, text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")


def _read_all(readers: Sequence[Callable[[], Iterator[Pair]]]) -> Iterator[Pair]:
    return chain.from_iterable(read() for read in readers)


def _folder(name: str, corpus: ParallelCorpus, cache: Path) -> Path:
    folders = [cache / "corpora"]
    named = os.environ.get("SUBLAYER_DATA")
    if named:
        folders.insert(0, expanded(named))
    for folder in folders:
        if (folder / name).is_dir():
            return folder / name
    raise DataError(
        f"data.corpus = {name} is not there: "
        f"unpack its publisher's files ({corpus.url}) into {folders[0] / name}"
    )


def _file(folder: Path, name: str, corpus: ParallelCorpus) -> Path:
    for suffix in _PACKED:
        paths = sorted(folder.rglob(name + suffix))
        if paths:
            return paths[0]
    raise DataError(
        f"{folder} has no {name}: unpack all of its publisher's files there ({corpus.url})"
    )


def _both(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in names)


_IWSLT_TRAIN = _both("train.tags.de-en.{l}")
_IWSLT_TESTS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")

PARALLEL_CORPORA: dict[str, ParallelCorpus] = {
    "iwslt14": ParallelCorpus(
        ("de", "en"),
        "https://wit3.fbk.eu/2014-01",
        {
            "train": Files(_IWSLT_TRAIN, tagged_lines, every=23),
            "valid": Files(_IWSLT_TRAIN, tagged_lines, every=23, takes_nth=True),
            "test": Files(
                _both(*(f"IWSLT14.{each}.de-en.{{l}}.xml" for each in _IWSLT_TESTS)), segments
            ),
        },
        {"train": 160_239, "valid": 7_283, "test": 6_750},
    ),
    "wmt14": ParallelCorpus(
        ("en", "de"),
        "https://www.statmt.org/wmt14/translation-task.html",
        {
            "train": Files(
                _both(
                    "europarl-v7.de-en.{l}",
                    "commoncrawl.de-en.{l}",
                    "news-commentary-v12.de-en.{l}",
                ),
                line_pairs,
            ),
            "valid": Files(_both("newstest2013.{l}"), line_pairs),
            "test": Files(
                (("newstest2014-deen-src.{l}.sgm", "newstest2014-deen-ref.{l}.sgm"),), segments
            ),
        },
        {"valid": 3_000, "test": 3_003},
    ),
}
"""How each corpus of ``sublayer.config.texts.PARALLEL_CORPORA`` is read.

The counts are what fairseq's scripts usually leave.
"""
