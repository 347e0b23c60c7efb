"""Pairs of a recipe before encoding: location and cleaning."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sublayer.config.data import HUB, DataConfig, pair_fields
from sublayer.counts import count
from sublayer.data.parallel.files import (
    TRANSLATION,
    Fields,
    Pair,
    PairSource,
    find_corpus,
    line_pairs,
    record_pairs,
    tab_pairs,
)
from sublayer.data.text.documents import Records, open_pack
from sublayer.data.text.files import FileDocument, RawDocument, check_text, read_unchanged
from sublayer.data.text.ranges import DocumentRange
from sublayer.data.text.records import json_records, parse_hub
from sublayer.data.text.splitting import SplitName
from sublayer.data.tokenizers.languages import LanguageRules
from sublayer.errors import ConfigError, DataError
from sublayer.files.cache_folder import content_key, replacing
from sublayer.files.parsing import read_json
from sublayer.files.storage import expanded
from sublayer.system.stages import note
from sublayer.tasks.records import (
    read_parquet,
    read_records,
    sheets_note,
    suffix_of,
    whole_rows,
)

VERSION = 3
"""Changes whenever equal files would give other pairs."""

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
"""The words of a side at most, and how many times the shorter side's words the longer may have."""
Sides = tuple[LanguageRules, LanguageRules]
"""The rules of both languages, the source's first."""


def refused_pair(source: list[str], target: list[str], limits: Limits = (None, None)) -> str:
    """Return why a pair is dropped, by its word counts; empty where it is kept.

    A pair with an empty side is always dropped. Source: Moses' clean-corpus-n.perl.
    """
    longest, ratio = limits
    shorter, longer = sorted((len(source), len(target)))
    if shorter == 0:
        return "with an empty side"
    if longest is not None and longer > longest:
        return f"with more than {count(longest, 'word')}"
    if ratio is not None and longer > ratio * shorter:
        return f"with more than {ratio:g} words to one"
    return ""


def sides_of(data: DataConfig) -> Sides:
    """Return the rules of both languages, the source's first."""
    source, target = _languages(data)
    return _rules(source, data), _rules(target, data)


def _rules(language: str, data: DataConfig) -> LanguageRules:
    return LanguageRules(
        language, data.moses, data.moses_hyphens, bool(data.lowercase), data.moses_escapes
    )


def _languages(data: DataConfig) -> tuple[str, str]:
    assert data.source_language is not None, "the text is pairs"
    assert data.target_language is not None, "the text is pairs"
    return data.source_language, data.target_language


def find_pairs(data: DataConfig, cache: Path, split: SplitName) -> PairSource | None:
    """Find the pairs that a recipe names for a split.

    Returns None where it names none: the split, if any, is then a share of training.

    Raises ConfigError where only one of two files is named, pairs are named in two ways, or by a
    list; DataError for a missing file or one of another kind.
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
        return _of_files(expanded(source), expanded(target), cache)
    if path is None:
        return None
    if not isinstance(path, str):
        raise ConfigError(
            f"data.{prefix}path = {path!r} is a list, of which pairs cannot be read: name one file"
        )
    return _of_records(path, pair_fields(data), cache)


def _of_files(source: Path, target: Path, cache: Path) -> PairSource:
    for path in (source, target):
        if not path.is_file():
            raise DataError(f"{path} is not a file: name one with a text on each line")
        if path.suffix.lower() != ".zip":  # whose one file is read, or the archive refused then
            check_text(path)
    files = [FileDocument(source, cache), FileDocument(target, cache)]
    identity = ("lines", *(file.digest() for file in files))
    read = partial(read_unchanged, files, partial(line_pairs, source, target))
    return PairSource(f"{source} and {target}", identity, read)


def _of_records(entry: str, fields: Fields, cache: Path) -> PairSource:
    if entry.startswith(HUB):
        data_set = parse_hub(entry)
        return PairSource(
            entry, (str(data_set), *fields), lambda: record_pairs(data_set.records(), fields)
        )
    path = expanded(entry)
    kind = _KINDS.get(suffix_of(path))
    if not path.is_file() or kind is None:
        raise DataError(
            f"{path} is not a file of pairs, {', '.join(_KINDS)}: two files of lines are named by "
            "data.source_path and data.target_path"
        )
    notes: list[str] = []

    def read_rows() -> Iterator[Pair]:
        if suffix_of(path) == ".xlsx" and (sheets := sheets_note(path)):
            notes.append(sheets)
        yield from record_pairs(whole_rows(read_records(path)), fields)

    readers: dict[str, Callable[[], Iterator[Pair]]] = {
        "tab, named": partial(tab_pairs, path, fields, notes),
        "json": lambda: record_pairs(json_records(path), fields),
        "rows": read_rows,
        "parquet": lambda: record_pairs(read_parquet(path, fields, (TRANSLATION,)), fields),
    }
    file = FileDocument(path, cache)
    read = partial(read_unchanged, [file], readers[kind])
    return PairSource(entry, (kind, file.digest(), *fields), read, notes=notes)


def pack_pairs(
    source: PairSource, sides: Sides, cache: Path, limits: Limits | None = None
) -> Records:
    """Tokenize pairs into words, drop those beyond ``limits`` (longest, ratio), and cache them.

    A document of the pack is four lines: words of source and target, and both original lines
    (``PairText``). Without ``limits`` pairs with an empty side stay, as all pairs of a scored set
    count. Dropped pairs are counted, and reported on standard error.

    Raises DataError where a file cannot be read, or no pair is left; ConfigError where the rules of
    a language are not installed.
    """
    key = content_key(VERSION, source.identity, [side.content() for side in sides], limits)
    path = cache / "pairs" / key
    notes_path = path.with_name(f"{key}.notes.json")
    notes: list[str] = []
    read = partial(_documents, source, sides, limits, notes)
    records = open_pack(path, [(source.name, read)], keeps_blank=True)
    if notes:
        with replacing(notes_path) as file:
            file.write(json.dumps(notes).encode())
    elif notes_path.is_file():
        notes = read_json(notes_path, DataError)
    for line in notes:
        note(line)
    if not records:
        raise DataError(f"{source.name} has no pair of texts: name another file")
    return records


def _documents(
    source: PairSource, sides: Sides, limits: Limits | None, notes: list[str]
) -> Iterator[RawDocument]:
    dropped: Counter[str] = Counter()
    n_left = n_taken = 0
    for line, *texts in source.read():
        source_words, target_words = (
            rules.words(text) for rules, text in zip(sides, texts, strict=True)
        )
        if limits is not None and (reason := refused_pair(source_words, target_words, limits)):
            dropped[reason] += 1
            continue
        n_left += 1
        if source.takes(n_left):
            n_taken += 1
            lines = (" ".join(source_words), " ".join(target_words), *texts)
            yield line, "\n".join(lines).encode()
    for reason, n_dropped in dropped.most_common():
        notes.append(f"{source.name}: {count(n_dropped, 'pair')} {reason} left out")
    if source.count not in (None, n_taken):
        notes.append(
            f"{source.name}: {count(n_taken, 'pair')}, where its papers have {source.count:,}"
        )
    notes += source.notes


class PairText(NamedTuple):
    """A pair: space-separated words of both sides, and both original lines."""

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
