"""Translation pairs of a recipe, from two files, records or a named corpus, cleaned and cached.

Sources of the corpora: fairseq's ``prepare-iwslt14.sh`` and ``prepare-wmt14en2de.sh`` as Macaron
Net released them. Departure: XML entities (``&amp;``) are decoded.
"""

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from sublayer.config.data import HUB, DataConfig
from sublayer.data.text.documents import (
    Records,
    encoded,
    json_records,
    open_pack,
    parse_hub,
    shown_fields,
)
from sublayer.data.text.files import FileDocument, RawDocument, check_text, read_unchanged
from sublayer.data.text.ranges import DocumentRange, SplitName
from sublayer.data.tokenizers.languages import LanguageRules
from sublayer.errors import ConfigError, DataError
from sublayer.files.cache_folder import content_key, corpus_folders, replacing
from sublayer.files.lines import PACKED, decoded, read_lines, suffix_of
from sublayer.files.parsing import read_json
from sublayer.files.storage import expanded
from sublayer.numbers import count
from sublayer.system.terminal import note
from sublayer.tasks.records import Record, read_parquet, read_records, sheets_note, whole_rows

Fields = tuple[str, str]
"""Fields or columns of the source and the target.

In a TSV file without a header line they are the first two columns."""
Pair = tuple[int, str, str]
"""Line or row of a pair, from 1, with its source and its target, without line ends."""

_HEADERS = {
    *("source", "target", "src", "tgt", "trg", "source_text", "target_text", "src_text"),
    *("tgt_text", "source_sentence", "target_sentence", "text", "translation", "input", "output"),
    *("english", "german", "french", "spanish", "italian", "dutch", "portuguese", "russian"),
    *("chinese", "japanese", "korean", "arabic", "turkish", "polish", "czech", "vietnamese"),
}
"""Words that reveal a header line as the names of columns."""
TRANSLATION = "translation"
"""Field of the hub's data sets that holds an object with a text per language."""


def line_pairs(source: Path, target: Path) -> Iterator[Pair]:
    """Pair two files line by line; ``read_lines`` says which kinds of files.

    Raises DataError: with file and line where a line is not UTF-8, with both counts where one file
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
    """Read one pair per line, its texts separated by a tab.

    A header line is skipped. It names the fields, which then select columns, or has words such as
    ``source`` and ``target``. Further columns are ignored. ``notes`` report both.

    Raises DataError with file and line where there is no tab, or a line is not UTF-8.
    """
    places = (0, 1)
    longer: list[int] = []
    for line, data in read_lines(path):
        columns = _line(path, line, data).split("\t")
        if len(columns) <= max(places):
            raise DataError(f"{path}, line {line}: no tab between a text and its translation")
        if line == 1:
            names = [column.strip().casefold() for column in columns]
            source, target = (name.casefold() for name in fields)
            has_fields = source in names and target in names
            if has_fields:
                places = names.index(source), names.index(target)
            if has_fields or (set(names[:2]) <= _HEADERS and names[0] != names[1]):
                read = " and ".join(repr(columns[index].strip()) for index in places)
                notes.append(
                    f"{path}: the first line is read as a header, not as a pair: columns {read}"
                )
                continue
        if len(columns) > 2:
            longer.append(line)
        yield line, columns[places[0]], columns[places[1]]
    if longer:
        notes.append(
            f"{path}: {count(len(longer), 'line')} with more than two columns, of which only two "
            f"are read; the first is line {longer[0]}"
        )


def record_pairs(records: Iterable[Record], fields: Fields) -> Iterator[Pair]:
    """Read a pair from two fields of each record, or of the object in its ``translation``.

    Null is read as an empty text, and newlines within a text as spaces. Raises DataError, with the
    record's place, where a text is missing or has a lone surrogate.
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
    """Files of a split for a language pair, and its choice of pairs."""

    names: tuple[tuple[str, str], ...]
    """Files of source and target; ``{l}`` is replaced by the language of each."""
    read: Callable[[Path, Path], Iterator[Pair]]
    """Function that reads the pairs of two files."""
    every: int = 0
    """Interval of held-out pairs: every n-th of those that pass the filters, from 1; 0: none."""
    takes_nth: bool = False
    """Whether the split has the held-out pairs, or all others."""

    def takes(self, number: int) -> bool:
        """Return whether the split has pair ``number``, from 1, of those that pass the filters."""
        return not self.every or (number % self.every == 0) == self.takes_nth


@dataclass(frozen=True)
class ParallelCorpus:
    """Parallel corpus: its languages in the publisher's order, its URL, the files of each split."""

    languages: tuple[str, str]
    url: str
    splits: Mapping[SplitName, Files]
    counts: Mapping[SplitName, int]
    """Number of pairs of each split in the papers, where known."""


@dataclass(frozen=True)
class PairSource:
    """Source of pairs: its name in messages, its identity, and its reader."""

    name: str
    identity: tuple[Any, ...]
    """JSON values, equal only for sources of the same pairs."""
    read: Callable[[], Iterator[Pair]]
    takes: Callable[[int], bool] = lambda number: True
    """Function that says whether the split has a pair, by its number, from 1, after the filters."""
    count: int | None = None
    """Number of pairs of the split in the papers; None: not known."""
    notes: list[str] = field(default_factory=list)
    """Notes on the files, complete once the files were read."""
    is_filtered: bool = False
    """Whether the filters of the training pairs apply, as to a split of the same files."""

    def pack(self, sides: "Sides", cache: Path, limits: "Limits | None" = None) -> Records:
        """Tokenize pairs into words, drop those beyond ``limits`` (longest, ratio), and cache them.

        A document of the pack is four lines: words of source and target, and both original lines
        (``PairText``). Without ``limits`` pairs with an empty side stay, as all pairs of a scored
        set count. Dropped pairs are counted, and reported on standard error.

        Raises DataError where a file cannot be read, or no pair is left; ConfigError where the
        rules of a language are not installed.
        """
        key = content_key(VERSION, self.identity, [side.content() for side in sides], limits)
        path = cache / "pairs" / key
        notes_path = path.with_name(f"{key}.notes.json")
        notes: list[str] = []
        read = partial(self._documents, sides, limits, notes)
        records = open_pack(path, [(self.name, read)], keeps_blank=True)
        if notes:
            with replacing(notes_path) as file:
                file.write(json.dumps(notes).encode())
        elif notes_path.is_file():
            notes = read_json(notes_path, DataError)
        for line in notes:
            note(line)
        if not records:
            raise DataError(f"{self.name} has no pair of texts: name another file")
        return records

    def _documents(
        self, sides: "Sides", limits: "Limits | None", notes: list[str]
    ) -> Iterator[RawDocument]:
        dropped: Counter[str] = Counter()
        n_left = n_taken = 0
        for line, *texts in self.read():
            source_words, target_words = (
                rules.words(text) for rules, text in zip(sides, texts, strict=True)
            )
            if limits is not None and (reason := refused_pair(source_words, target_words, limits)):
                dropped[reason] += 1
                continue
            n_left += 1
            if self.takes(n_left):
                n_taken += 1
                lines = (" ".join(source_words), " ".join(target_words), *texts)
                yield line, "\n".join(lines).encode()
        for reason, n_dropped in dropped.most_common():
            notes.append(f"{self.name}: {count(n_dropped, 'pair')} {reason} left out")
        if self.count not in (None, n_taken):
            notes.append(
                f"{self.name}: {count(n_taken, 'pair')}, where its papers have {self.count:,}"
            )
        notes += self.notes


def find_corpus(name: str, split: SplitName, source: str, target: str, cache: Path) -> PairSource:
    """Find a split's files in folder ``name`` of SUBLAYER_DATA or of the cache's corpora.

    They may lie at any depth, uncompressed, gzip or zstd. Either language may be the source.

    Raises ConfigError for languages other than the corpus has, DataError where a file is missing.
    """
    corpus = PARALLEL_CORPORA[name]
    if {source, target} != set(corpus.languages):
        first, second = corpus.languages
        raise ConfigError(
            f"data.corpus = {name} has the languages {first} and {second}, not {source} and "
            f"{target}"
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
    """Read IWSLT's training files without metadata lines, titles and descriptions without tags.

    Raises DataError as ``line_pairs`` does. Source: fairseq, ``prepare-iwslt14.sh``.
    """
    for line, left, right in line_pairs(source, target):
        if not any(tag in left or tag in right for tag in _LEFT_OUT):
            yield line, _TAGS.sub("", left).strip(), _TAGS.sub("", right).strip()


def segments(source: Path, target: Path) -> Iterator[Pair]:
    """Read the segments of two XML or SGML files, in order; raise DataError if counts differ.

    Entities are decoded, and a right single quotation mark is read as an apostrophe.
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
            "fetch both files again"
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
"""Files of each corpus of ``sublayer.config.data.PARALLEL_CORPORA``.

The numbers of pairs are the usual results of fairseq's scripts.
"""


VERSION = 3
"""Version of the reading: increased whenever equal files would give other pairs."""

_KINDS = {
    ".tsv": "tab, named",
    ".csv": "rows",
    ".xlsx": "rows",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}

Limits = tuple[int | None, float | None]
"""Maximum number of words of a side, and maximum ratio of the longer side to the shorter."""
Sides = tuple[LanguageRules, LanguageRules]
"""Rules of both languages, the source's first."""


def refused_pair(source: list[str], target: list[str], limits: Limits = (None, None)) -> str:
    """Return the reason to drop a pair, by its word counts; empty if it is kept.

    A pair with an empty side is always dropped. Source: Moses' clean-corpus-n.perl.
    """
    longest, ratio = limits
    shorter, longer = sorted((len(source), len(target)))
    if shorter == 0:
        return "with an empty side"
    if longest is not None and longer > longest:
        return f"with more than {count(longest, 'word')} on a side"
    if ratio is not None and longer > ratio * shorter:
        return f"with a length ratio above {ratio:g}"
    return ""


def sides_of(data: DataConfig) -> Sides:
    """Return the rules of both languages, the source's first."""
    source, target = (
        LanguageRules(
            language, data.moses, data.moses_hyphens, bool(data.lowercase), data.moses_escapes
        )
        for language in _languages(data)
    )
    return source, target


def _languages(data: DataConfig) -> tuple[str, str]:
    assert data.source_language is not None, "the text is pairs"
    assert data.target_language is not None, "the text is pairs"
    return data.source_language, data.target_language


def find_pairs(data: DataConfig, cache: Path, split: SplitName) -> PairSource | None:
    """Find the pairs that a recipe names for a split.

    Returns None if it names none: the split, if any, is then a share of the training pairs.

    Raises ConfigError where only one of two files is named, or where pairs are named in two ways or
    by a list; DataError for a missing file or one of another kind.
    """
    if isinstance(data.corpus, str):
        return find_corpus(data.corpus, split, *_languages(data), cache)
    prefix = "" if split == "train" else f"{split}_"
    source, target, path = (
        getattr(data, f"{prefix}{name}") for name in ("source_path", "target_path", "path")
    )
    if (source is None) != (target is None):
        side = "source" if source is None else "target"
        raise ConfigError(f"data.{prefix}{side}_path is missing: pairs in two files need both")
    if source is not None and path is not None:
        raise ConfigError(
            f"data.{prefix}path and data.{prefix}source_path both name pairs: leave one out"
        )
    if source is not None:
        sides = [expanded(source), expanded(target)]
        for side_path in sides:
            if not side_path.is_file():
                raise DataError(f"{side_path} is not a file: name one with a text on each line")
            # Of an archive the only file is read; an archive of several is refused then.
            if side_path.suffix.lower() != ".zip":
                check_text(side_path)
        files = [FileDocument(side_path, cache) for side_path in sides]
        digests = (file.digest() for file in files)
        read = partial(read_unchanged, files, partial(line_pairs, *sides))
        return PairSource(" and ".join(map(str, sides)), ("lines", *digests), read)
    if path is None:
        return None
    if not isinstance(path, str):
        raise ConfigError(
            f"data.{prefix}path = {path!r} is a list, but pairs are read from one file: name it"
        )
    fields = data.pair_fields()
    if path.startswith(HUB):
        data_set = parse_hub(path)
        return PairSource(
            path, (str(data_set), *fields), lambda: record_pairs(data_set.records(), fields)
        )
    file = FileDocument(expanded(path), cache)
    kind = _KINDS.get(suffix_of(file.path))
    if not file.path.is_file() or kind is None:
        raise DataError(
            f"{file.path} is not a file of pairs, {', '.join(_KINDS)}: two files of lines are "
            "named by data.source_path and data.target_path"
        )
    notes: list[str] = []

    def read_rows() -> Iterator[Pair]:
        if suffix_of(file.path) == ".xlsx" and (sheets := sheets_note(file.path)):
            notes.append(sheets)
        yield from record_pairs(whole_rows(read_records(file.path)), fields)

    readers: dict[str, Callable[[], Iterator[Pair]]] = {
        "tab, named": partial(tab_pairs, file.path, fields, notes),
        "json": lambda: record_pairs(json_records(file.path), fields),
        "rows": read_rows,
        "parquet": lambda: record_pairs(read_parquet(file.path, fields, (TRANSLATION,)), fields),
    }
    read = partial(read_unchanged, [file], readers[kind])
    return PairSource(path, (kind, file.digest(), *fields), read, notes=notes)


class PairText(NamedTuple):
    """Pair of texts: space-separated words of both sides, and both original lines."""

    source_words: str
    target_words: str
    source: str
    target: str


def read_pairs(ranges: Sequence[Sequence[DocumentRange]]) -> list[PairText]:
    """Read every pair of a split, in order; ``ranges`` by source."""
    return [
        PairText(*part.document.read()[:].decode().split("\n"))
        for of_source in ranges
        for part in of_source
    ]
