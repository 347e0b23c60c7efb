"""Named corpora of translations, read from their publishers' files: which lines of which files make each split.

Sources: fairseq's ``prepare-iwslt14.sh`` and ``prepare-wmt14en2de.sh`` as Macaron Net released them. A departure: the
entities of XML (``&amp;``) are read as what they stand for.
"""

import html
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from sublayer.config.texts import expanded
from sublayer.data.cache import file_digest
from sublayer.data.divide import SplitName
from sublayer.data.lines import decoded, read_lines
from sublayer.data.parallel import Pair, line_pairs
from sublayer.errors import ConfigError, DataError

_LEFT_OUT = ("<url>", "<talkid>", "<keywords>")
_TAGS = re.compile(r"</?(?:title|description)>")
_SEGMENT = re.compile(r"""<seg id="?[^">]*"?>\s*(.*?)\s*</seg>""", re.IGNORECASE)
_PACKED = ("", ".gz", ".zst")


@dataclass(frozen=True)
class Files:
    """The files of a split for a pair of languages: their names, where ``{l}`` stands for the language.

    ``read`` gives the pairs of two files. Of the pairs that the filters leave, ``takes_nth`` takes every n-th (counted
    from 1), where ``every`` is n, and otherwise all but those.
    """

    names: tuple[tuple[str, str], ...]
    read: Callable[[Path, Path], Iterator[Pair]]
    every: int | None = None
    takes_nth: bool = False

    def takes(self, number: int) -> bool:
        """Tell whether the split has the pair of this number, from 1, of those that the filters leave."""
        return self.every is None or (number % self.every == 0) == self.takes_nth


@dataclass(frozen=True)
class ParallelCorpus:
    """A corpus: its languages in the order of its publisher, where it is from, and the files of each split.

    ``counts`` are the pairs that each split has with its papers' settings, as far as they are known.
    """

    languages: tuple[str, str]
    url: str
    splits: Mapping[SplitName, Files]
    counts: Mapping[SplitName, int]


@dataclass(frozen=True)
class FoundPairs:
    """A split's files as they were found: what they are made of, their pairs, which are taken, how many usually."""

    identity: tuple[str, ...]
    read: Callable[[], Iterator[Pair]]
    files: Files
    count: int | None


def find_corpus(name: str, split: SplitName, source: str, target: str, cache: Path) -> FoundPairs:
    """Find a split's files in the folder ``name`` of SUBLAYER_DATA, or of the cache's corpora, at whatever depth.

    Raises ConfigError for languages that the corpus has not, DataError where a file is missing.
    """
    corpus = PARALLEL_CORPORA[name]
    if {source, target} != set(corpus.languages):
        first, second = corpus.languages
        raise ConfigError(f"data.corpus = {name} has {first} and {second}, not {source} and {target}")
    files = corpus.splits[split]
    folder = _folder(name, corpus, cache)
    paths = [
        (_file(folder, left.format(l=source), corpus), _file(folder, right.format(l=target), corpus))
        for left, right in files.names
    ]
    digests = tuple(file_digest(path, cache) for pair in paths for path in pair)
    readers = [partial(files.read, *pair) for pair in paths]
    return FoundPairs((name, split, *digests), lambda: _numbered(readers), files, corpus.counts.get(split))


def tagged_lines(source: Path, target: Path) -> Iterator[Pair]:
    """Read IWSLT's training files: lines of metadata are left out, titles and descriptions lose their tags."""
    for line, left, right in line_pairs(source, target):
        if any(tag in left or tag in right for tag in _LEFT_OUT):
            continue
        yield line, _TAGS.sub("", left).strip(), _TAGS.sub("", right).strip()


def segments(source: Path, target: Path) -> Iterator[Pair]:
    """Read the segments of two XML or SGML files, in order. Raises DataError where their numbers differ."""
    texts = [list(_segments(path)) for path in (source, target)]
    if len(texts[0]) != len(texts[1]):
        raise DataError(f"{source} has {len(texts[0]):,} segments and {target} has {len(texts[1]):,}: fetch them again")
    for (line, left), (_, right) in zip(*texts, strict=True):
        yield line, left, right


def _segments(path: Path) -> Iterator[tuple[int, str]]:
    for line, data in read_lines(path):
        for found in _SEGMENT.finditer(decoded(path, line, data)):
            yield line, html.unescape(found[1]).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")


def _numbered(readers: Sequence[Callable[[], Iterator[Pair]]]) -> Iterator[Pair]:
    return chain.from_iterable(read() for read in readers)


def _folder(name: str, corpus: ParallelCorpus, cache: Path) -> Path:
    named = os.environ.get("SUBLAYER_DATA")
    places = [*([expanded(named)] if named else []), cache / "corpora"]
    for place in places:
        if (place / name).is_dir():
            return place / name
    raise DataError(
        f"data.corpus = {name} is not there: unpack its publisher's files ({corpus.url}) into {places[0] / name}"
    )


def _file(folder: Path, name: str, corpus: ParallelCorpus) -> Path:
    for suffix in _PACKED:
        found = sorted(folder.rglob(name + suffix))
        if found:
            return found[0]
    raise DataError(f"{folder} has no {name}: unpack all of its publisher's files there ({corpus.url})")


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
            "test": Files(_both(*(f"IWSLT14.{each}.de-en.{{l}}.xml" for each in _IWSLT_TESTS)), segments),
        },
        {"train": 160_239, "valid": 7_283, "test": 6_750},
    ),
    "wmt14": ParallelCorpus(
        ("en", "de"),
        "https://www.statmt.org/wmt14/translation-task.html",
        {
            "train": Files(
                _both("europarl-v7.de-en.{l}", "commoncrawl.de-en.{l}", "news-commentary-v12.de-en.{l}"), line_pairs
            ),
            "valid": Files(_both("newstest2013.{l}"), line_pairs),
            "test": Files((("newstest2014-deen-src.{l}.sgm", "newstest2014-deen-ref.{l}.sgm"),), segments),
        },
        {"valid": 3_000, "test": 3_003},
    ),
}
"""How each corpus of ``sublayer.config.data.PARALLEL_CORPORA`` is found. Counts: fairseq's scripts as usually run."""
