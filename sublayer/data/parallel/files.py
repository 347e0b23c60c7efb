"""Pairs of a text and its translation: two files, records that hold both, or a named corpus.

Sources of the corpora: fairseq's ``prepare-iwslt14.sh`` and ``prepare-wmt14en2de.sh`` as Macaron
Net released them. A departure: the entities of XML (``&amp;``) are read as the characters that they
stand for.
"""

import html
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from sublayer.counts import count
from sublayer.data.cache import corpus_folders
from sublayer.data.text.files import FileDocument, read_unchanged
from sublayer.data.text.records import (
    HubSet,
    check_single,
    json_objects,
    parquet_records,
    shown_fields,
)
from sublayer.data.text.splitting import SplitName
from sublayer.errors import ConfigError, DataError
from sublayer.files.lines import PACKED, decoded, read_lines
from sublayer.tasks.records import read_records, sheets_note, suffix_of

Pair = tuple[int, str, str]
"""The line or row of a pair, from 1, its source and its target, without line ends."""

_HEADERS = {
    *("source", "target", "src", "tgt", "trg", "source_text", "target_text", "src_text"),
    *("tgt_text", "source_sentence", "target_sentence", "text", "translation", "input", "output"),
    *("english", "german", "french", "spanish", "italian", "dutch", "portuguese", "russian"),
    *("chinese", "japanese", "korean", "arabic", "turkish", "polish", "czech", "vietnamese"),
}
"""Words that name a column of texts, not all of which are a field's."""
_TRANSLATION = "translation"
"""The field under which the hub's data sets hold an object of a text per language."""


@dataclass(frozen=True)
class Fields:
    """The JSON fields, or columns of Parquet and of the hub, that hold a pair.

    Of a TSV file without a line that names them they are the first two columns.
    """

    source: str
    target: str


def line_pairs(source: Path, target: Path) -> Iterator[Pair]:
    """Pair two files line by line; plain, gzip or zstd.

    Raises DataError, with file and line, where a line is not UTF-8; with both counts where one file
    is longer.
    """
    lines = zip_longest(read_lines(source), read_lines(target))
    for number, (left, right) in enumerate(lines, 1):
        if left is None or right is None:
            raise DataError(
                f"{source} has {count(_count_lines(source), 'line')} "
                f"and {target} has {_count_lines(target):,}: "
                "line i of one must be the translation of line i of the other"
            )
        source_text = _line(source, number, left[1])
        target_text = _line(target, number, right[1])
        yield number, source_text, target_text


def _count_lines(path: Path) -> int:
    return sum(1 for _ in read_lines(path))


def tab_pairs(path: Path, fields: Fields, notes: list[str]) -> Iterator[Pair]:
    """Read a pair a line, its texts divided by a tab.

    A first line that names columns is no pair: by the fields, which then say which columns are
    read, or by words such as ``source`` and ``target``. Other columns than two are left out. Both
    are added to ``notes``.

    Raises DataError with file and line where there is no tab, or a line is not UTF-8.
    """
    places = (0, 1)
    first_longer = n_longer = 0
    for line, data in read_lines(path):
        columns = _line(path, line, data).split("\t")
        if len(columns) < 2:
            raise DataError(f"{path}, line {line}: no tab between a text and its translation")
        if line == 1 and (found := _named_columns(columns, fields)) is not None:
            places = found
            read = " and ".join(repr(columns[place].strip()) for place in places)
            notes.append(f"{path}: its first line names columns, and is no pair: {read} are read")
            continue
        if max(places) >= len(columns):
            raise DataError(f"{path}, line {line}: fewer columns than the first line names")
        if len(columns) > 2:
            n_longer += 1
            first_longer = first_longer or line
        yield line, columns[places[0]], columns[places[1]]
    if n_longer:
        notes.append(
            f"{path}: {count(n_longer, 'line')} of more than two columns, of which two are read; "
            f"the first is line {first_longer}"
        )


def _named_columns(columns: list[str], fields: Fields) -> tuple[int, int] | None:
    """Return the places of source and target where a first line names columns; else None."""
    names = [column.strip().casefold() for column in columns]
    wanted = [fields.source.casefold(), fields.target.casefold()]
    if all(name in names for name in wanted):
        return names.index(wanted[0]), names.index(wanted[1])
    return (0, 1) if all(name in _HEADERS for name in names[:2]) and names[0] != names[1] else None


def json_pairs(path: Path, fields: Fields) -> Iterator[Pair]:
    """Read a pair from each line's JSON object, or from the object in its ``translation``.

    Blank lines are none. A text that is null is empty, and newlines within one become spaces.

    Raises DataError with file and line where a line is broken or has not both texts.
    """
    for line, record in json_objects(path):
        yield line, *_texts(record, fields, f"{path}, line {line}")


def row_pairs(path: Path, fields: Fields, notes: list[str]) -> Iterator[Pair]:
    """Read a pair a row of CSV or of a workbook, from the two columns of a header.

    Sheets that are not read are added to ``notes``. Texts are as in ``json_pairs``. Raises
    DataError with file and line where a row has not both.
    """
    if suffix_of(path) == ".xlsx" and (sheets := sheets_note(path)):
        notes.append(sheets)
    for record in read_records(path):
        if record.problem:
            raise DataError(f"{record.place} has {record.problem}: mend it")
        yield record.line, *_texts(dict(record.values), fields, record.place)


def parquet_pairs(path: Path, fields: Fields) -> Iterator[Pair]:
    """Read a pair a row, from two columns or from the objects in a column ``translation``.

    Texts are as in ``json_pairs``. Raises DataError where the file is damaged or has not both
    texts, a column is there twice, or pyarrow is not installed.
    """
    for row, record in parquet_records(path, partial(_columns, fields, path)):
        yield row, *_texts(record, fields, f"{path}, row {row}")


def _columns(fields: Fields, path: Path, schema: Any) -> list[str]:
    sides = {"source": fields.source, "target": fields.target}
    for side, name in sides.items():
        if name not in schema.names and _TRANSLATION not in schema.names:
            names = shown_fields(schema.names)
            raise DataError(f"{path}: no column {name!r}: set data.{side}_field to {names}")
    candidates = dict.fromkeys([*sides.values(), _TRANSLATION])
    columns = [name for name in candidates if name in schema.names]
    for name in columns:
        check_single(schema, name, path)
    return columns


def hub_pairs(data_set: HubSet, fields: Fields) -> Iterator[Pair]:
    """Read a pair from each row of a data set of the hub.

    Texts are as in ``json_pairs``. Raises DataError where it cannot be fetched or lacks one of the
    texts, or datasets is not installed.
    """
    for row, record in enumerate(data_set.load(), 1):
        yield row, *_texts(record, fields, f"{data_set}, row {row}")


def _texts(record: dict[str, Any], fields: Fields, where: str) -> tuple[str, str]:
    inner = record.get(_TRANSLATION)
    has_both = {fields.source, fields.target} <= record.keys()
    if isinstance(inner, dict) and not has_both:
        record = inner
    texts = []
    for side, name in (("source", fields.source), ("target", fields.target)):
        if name not in record:
            names = shown_fields(record)
            raise DataError(f"{where}: no field {name!r}: set data.{side}_field to one of {names}")
        text = record[name]
        if text is None:
            text = ""
        if not isinstance(text, str):
            raise DataError(f"{where}: field {name!r} is {type(text).__name__}, not text")
        # Pairs are stored a line a text.
        on_one_line = text.replace("\n", " ")
        texts.append(on_one_line)
    source, target = texts
    return source, target


def _line(path: Path, line: int, data: bytes) -> str:
    return decoded(path, line, data.rstrip(b"\r\n"))


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
    """True where the split has the held-out pairs, False: all but those."""

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
    folder = _folder(name, corpus, cache)
    documents: list[FileDocument] = []
    readers = []
    for left, right in files.names:
        source_path = _file(folder, left.format(l=source), corpus)
        target_path = _file(folder, right.format(l=target), corpus)
        documents += [FileDocument(source_path, cache), FileDocument(target_path, cache)]
        readers.append(partial(files.read, source_path, target_path))

    def read_all() -> Iterator[Pair]:
        return chain.from_iterable(read() for read in readers)

    return PairSource(
        name=f"{name} {split}",
        identity=(name, split, *(document.digest() for document in documents)),
        read=partial(read_unchanged, documents, read_all),
        takes=files.takes,
        count=corpus.counts.get(split),
        is_filtered=files.every is not None,
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

    Entities are read as their characters, and a right single quotation mark as an apostrophe.
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


def _folder(name: str, corpus: ParallelCorpus, cache: Path) -> Path:
    folders = corpus_folders(cache)
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
"""The files of each corpus of ``sublayer.config.texts.PARALLEL_CORPORA``.

The counts are what fairseq's scripts usually leave.
"""
