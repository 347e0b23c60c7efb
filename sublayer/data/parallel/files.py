"""Translation pairs: two files, records of both sides, or a named corpus.

Sources of the corpora: fairseq's ``prepare-iwslt14.sh`` and ``prepare-wmt14en2de.sh`` as Macaron
Net released them. Departure: XML entities (``&amp;``) are decoded.
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from sublayer.counts import count
from sublayer.data.text.files import FileDocument, read_unchanged
from sublayer.data.text.records import encoded, shown_fields
from sublayer.data.text.splitting import SplitName
from sublayer.errors import ConfigError, DataError
from sublayer.files.cache_folder import corpus_folders
from sublayer.files.lines import PACKED, decoded, read_lines
from sublayer.tasks.records import Record

Fields = tuple[str, str]
"""The fields or columns of records that hold source and target.

Of a TSV file without a line that names them they are the first two columns."""
Pair = tuple[int, str, str]
"""The line or row of a pair, from 1, its source and its target, without line ends."""

_HEADERS = {
    *("source", "target", "src", "tgt", "trg", "source_text", "target_text", "src_text"),
    *("tgt_text", "source_sentence", "target_sentence", "text", "translation", "input", "output"),
    *("english", "german", "french", "spanish", "italian", "dutch", "portuguese", "russian"),
    *("chinese", "japanese", "korean", "arabic", "turkish", "polish", "czech", "vietnamese"),
}
"""Words that name a column of texts, not all of which are a field's."""
TRANSLATION = "translation"
"""The field under which the hub's data sets hold an object of a text per language."""


def line_pairs(source: Path, target: Path) -> Iterator[Pair]:
    """Pair two files line by line, of the kinds that ``read_lines`` reads.

    Raises DataError, with file and line, where a line is not UTF-8; with both counts where one file
    is longer.
    """
    lines = zip_longest(read_lines(source), read_lines(target))
    for number, (left, right) in enumerate(lines, 1):
        if left is None or right is None:
            n_source, n_target = (sum(1 for _ in read_lines(path)) for path in (source, target))
            raise DataError(
                f"{source} has {count(n_source, 'line')} and {target} has {n_target:,}: "
                "line i of one must be the translation of line i of the other"
            )
        yield number, _line(source, number, left[1]), _line(target, number, right[1])


def _line(path: Path, line: int, data: bytes) -> str:
    return decoded(path, line, data.rstrip(b"\r\n"))


def tab_pairs(path: Path, fields: Fields, notes: list[str]) -> Iterator[Pair]:
    """Read a pair a line, its texts divided by a tab.

    A header line is skipped: it names the fields, which then select columns, or words such as
    ``source`` and ``target``. Other columns are ignored. Both are added to ``notes``.

    Raises DataError with file and line where there is no tab, or a line is not UTF-8.
    """
    places = (0, 1)
    longer: list[int] = []
    for line, data in read_lines(path):
        columns = _line(path, line, data).split("\t")
        if len(columns) <= max(places):
            raise DataError(f"{path}, line {line}: no tab between a text and its translation")
        if line == 1 and (indices := _named_columns(columns, fields)) is not None:
            places = indices
            read = " and ".join(repr(columns[index].strip()) for index in places)
            notes.append(f"{path}: its first line names columns, and is no pair: {read} are read")
            continue
        if len(columns) > 2:
            longer.append(line)
        yield line, columns[places[0]], columns[places[1]]
    if longer:
        notes.append(
            f"{path}: {count(len(longer), 'line')} of more than two columns, of which two are "
            f"read; the first is line {longer[0]}"
        )


def _named_columns(columns: list[str], fields: Fields) -> tuple[int, int] | None:
    """Return the source and target columns of a header line; otherwise None."""
    names = [column.strip().casefold() for column in columns]
    source, target = (name.casefold() for name in fields)
    if source in names and target in names:
        return names.index(source), names.index(target)
    return (0, 1) if all(name in _HEADERS for name in names[:2]) and names[0] != names[1] else None


def record_pairs(records: Iterable[Record], fields: Fields) -> Iterator[Pair]:
    """Read a pair from two fields of each record, or of the object in its ``translation``.

    A text that is null is empty, and newlines within one become spaces. Raises DataError, with its
    place, at a record without both texts, and at a lone surrogate.
    """
    for record in records:
        values = record.values
        inner = values.get(TRANSLATION)
        if isinstance(inner, dict) and not set(fields) <= values.keys():
            values = inner
        texts = []
        for side, name in zip(("source", "target"), fields, strict=True):
            if name not in values:
                raise DataError(
                    f"{record.place}: no field {name!r}: set data.{side}_field to one of "
                    f"{shown_fields(values)}"
                )
            text = values[name] if values[name] is not None else ""
            if not isinstance(text, str):
                raise DataError(
                    f"{record.place}: field {name!r} is {type(text).__name__}, not text"
                )
            # Pairs are stored as one line per text.
            texts.append(encoded(text, record.place).replace(b"\n", b" ").decode())
        source, target = texts
        yield record.line, source, target


_LEFT_OUT = ("<url>", "<talkid>", "<keywords>")
_TAGS = re.compile(r"</?(?:title|description)>")
_SEGMENT = re.compile(r"""<seg id="?[^">]*"?>\s*(.*?)\s*</seg>""", re.IGNORECASE)


class Files(NamedTuple):
    """Files of a split for a language pair, and its filter of pairs."""

    names: tuple[tuple[str, str], ...]
    """Those of source and target, where ``{l}`` stands for the language of each."""
    read: Callable[[Path, Path], Iterator[Pair]]
    """Reads the pairs of two files."""
    every: int = 0
    """Of the pairs that the filters leave, each n-th (from 1) is held out; 0: none is."""
    takes_nth: bool = False
    """True where the split has the held-out pairs, False: all but those."""

    def takes(self, number: int) -> bool:
        """Return whether the split has filtered pair ``number``, from 1."""
        return not self.every or (number % self.every == 0) == self.takes_nth


@dataclass(frozen=True)
class ParallelCorpus:
    """A corpus: its languages in its publisher's order, its URL, and the files of each split."""

    languages: tuple[str, str]
    url: str
    splits: Mapping[SplitName, Files]
    counts: Mapping[SplitName, int]
    """Pairs that each split has with its papers' settings, as far as they are known."""


@dataclass(frozen=True)
class PairSource:
    """A source of pairs: its name in messages, its identity, and its reader."""

    name: str
    identity: tuple[Any, ...]
    """JSON values that are equal only where the same pairs are read."""
    read: Callable[[], Iterator[Pair]]
    takes: Callable[[int], bool] = lambda number: True
    """Tells whether a split has the pair of a number, from 1, of those that the filters leave."""
    count: int | None = None
    """The number of pairs that the split has in its papers; None: not known."""
    notes: list[str] = field(default_factory=list)
    """Notes on the files, complete once they were read."""
    is_filtered: bool = False
    """True where the filters of training are its own too, since it is a part of the same files."""


def find_corpus(name: str, split: SplitName, source: str, target: str, cache: Path) -> PairSource:
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
    folders = [folder / name for folder in corpus_folders(cache)]

    def find(pattern: str, language: str) -> FileDocument:
        wanted = pattern.format(l=language)
        for folder in folders:
            for suffix in ("", *PACKED):
                for path in sorted(folder.rglob(wanted + suffix)):
                    return FileDocument(path, cache)
        raise DataError(
            f"data.corpus = {name} lacks {wanted}: unpack all of its publisher's files "
            f"({corpus.url}) into {folders[0]}"
        )

    pairs = [(find(left, source), find(right, target)) for left, right in files.names]
    documents = list(chain.from_iterable(pairs))

    def read() -> Iterator[Pair]:
        return chain.from_iterable(files.read(left.path, right.path) for left, right in pairs)

    return PairSource(
        name=f"{name} {split}",
        identity=(name, split, *(document.digest() for document in documents)),
        read=partial(read_unchanged, documents, read),
        takes=files.takes,
        count=corpus.counts.get(split),
        is_filtered=bool(files.every),
    )


def tagged_lines(source: Path, target: Path) -> Iterator[Pair]:
    """Read IWSLT's training files without lines of metadata; titles and descriptions lose tags.

    Raises DataError as ``line_pairs`` does. Source: fairseq, ``prepare-iwslt14.sh``.
    """
    for line, left, right in line_pairs(source, target):
        if not any(tag in left or tag in right for tag in _LEFT_OUT):
            yield line, _TAGS.sub("", left).strip(), _TAGS.sub("", right).strip()


def segments(source: Path, target: Path) -> Iterator[Pair]:
    """Read the segments of two XML or SGML files, in order; raise DataError if counts differ.

    Entities are read as their characters, and a right single quotation mark as an apostrophe.
    """
    sources, targets = (
        [
            (line, html.unescape(match[1]).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
            for line, data in read_lines(path)
            for match in _SEGMENT.finditer(decoded(path, line, data))
        ]
        for path in (source, target)
    )
    if len(sources) != len(targets):
        raise DataError(
            f"{source} has {len(sources):,} segments and {target} has {len(targets):,}: "
            "fetch them again"
        )
    for (line, left), (_, right) in zip(sources, targets, strict=True):
        yield line, left, right


def _both(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, name) for name in names)


_IWSLT_TRAIN = _both("train.tags.de-en.{l}")
_IWSLT_TESTS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
_WMT_TRAIN = ("europarl-v7.de-en.{l}", "commoncrawl.de-en.{l}", "news-commentary-v12.de-en.{l}")

PARALLEL_CORPORA: dict[str, ParallelCorpus] = {
    "iwslt14": ParallelCorpus(
        ("de", "en"),
        "https://wit3.fbk.eu/2014-01",
        {
            "train": Files(_IWSLT_TRAIN, tagged_lines, every=23),
            "valid": Files(_IWSLT_TRAIN, tagged_lines, every=23, takes_nth=True),
            "test": Files(
                _both(*(f"IWSLT14.{name}.de-en.{{l}}.xml" for name in _IWSLT_TESTS)), segments
            ),
        },
        {"train": 160_239, "valid": 7_283, "test": 6_750},
    ),
    "wmt14": ParallelCorpus(
        ("en", "de"),
        "https://www.statmt.org/wmt14/translation-task.html",
        {
            "train": Files(_both(*_WMT_TRAIN), line_pairs),
            "valid": Files(_both("newstest2013.{l}"), line_pairs),
            "test": Files(
                (("newstest2014-deen-src.{l}.sgm", "newstest2014-deen-ref.{l}.sgm"),), segments
            ),
        },
        {"valid": 3_000, "test": 3_003},
    ),
}
"""The files of each corpus of ``sublayer.config.data.PARALLEL_CORPORA``.

The counts are what fairseq's scripts usually leave.
"""
