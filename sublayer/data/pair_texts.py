"""The pairs of a recipe, before they are encoded: where each split's are read, and what is done to them."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sublayer.cache import cache_folder
from sublayer.config.data import HUB, DataConfig, pair_fields
from sublayer.config.texts import expanded
from sublayer.data.cache import content_key, file_digest
from sublayer.data.divide import SplitName
from sublayer.data.hub import parse_hub
from sublayer.data.pack import Found, Records, open_pack
from sublayer.data.pair_filter import PairFilter
from sublayer.data.parallel import Fields, Pair, hub_pairs, json_pairs, line_pairs, parquet_pairs, tab_pairs
from sublayer.data.parallel_corpora import find_corpus
from sublayer.data.sides import Side
from sublayer.data.text import Text
from sublayer.errors import ConfigError, DataError

VERSION = 2
"""Changes whenever equal files would give other pairs."""

_READERS = {".tsv": "tab", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_PACKED_SUFFIXES = (".gz", ".zst")


Limits = tuple[int | None, float | None]
"""The words of a side at most, and how many times the shorter side's words the longer may have."""


@dataclass(frozen=True)
class PairSource:
    """Where pairs are read: its name in messages, what it is made of, and how it is read."""

    name: str
    identity: tuple[Any, ...]
    read: Callable[[], Iterator[Pair]]
    takes: Callable[[int], bool] = lambda number: True
    """Whether a split has the pair of a number, from 1, of those that the filters leave."""
    count: int | None = None
    """How many pairs the split is known to have."""
    is_filtered: bool = False
    """Whether the filters of training are its own too, since it is a part of the same files."""


def sides_of(data: DataConfig) -> tuple[Side, Side]:
    """Give the rules of both languages."""
    assert data.source_language is not None and data.target_language is not None, "the text is pairs"
    source, target = (
        Side(language, data.moses, data.moses_hyphens, data.lowercase)
        for language in (data.source_language, data.target_language)
    )
    return source, target


def find_pairs(data: DataConfig, cache: Path, split: SplitName) -> PairSource | None:
    """Find the pairs that a recipe names for a split; None where it names none, but shares of the training split.

    Raises ConfigError where only one of two files is named, DataError where a file is not there.
    """
    if isinstance(data.corpus, str):
        return _of_corpus(data.corpus, data, cache, split)
    names = {
        "train": (data.source_path, data.target_path, data.path),
        "valid": (data.valid_source_path, data.valid_target_path, data.valid_path),
        "test": (data.test_source_path, data.test_target_path, data.test_path),
    }
    source, target, path = names[split]
    prefix = "" if split == "train" else f"{split}_"
    if (source is None) != (target is None):
        missing = f"{prefix}{'source' if source is None else 'target'}_path"
        raise ConfigError(f"data.{missing} is missing: pairs in two files need both")
    if source is not None and target is not None:
        if path is not None:
            raise ConfigError(f"data.{prefix}path and data.{prefix}source_path both name pairs: leave one out")
        return _of_files(expanded(source), expanded(target), cache)
    if path is None:
        return None
    if not isinstance(path, str):
        raise ConfigError(f"data.{prefix}path = {path!r} is a list, of which pairs cannot be read: name one file")
    return _of_records(path, Fields(*pair_fields(data)), cache)


def pack_pairs(source: PairSource, sides: tuple[Side, Side], cache: Path, limits: Limits | None = None) -> Records:
    """Divide pairs into words, drop those beyond ``limits`` (longest, ratio), and keep them for the next time.

    A document of the pack is four lines: the words of source and target, and both as they were read (``read_pair``).
    Without ``limits`` pairs with an empty side stay, as what is scored is scored whole. What is dropped is counted, and
    said on standard error. Raises DataError where a file cannot be read, or no pair is left.
    """
    key = content_key(VERSION, source.identity, [side.content() for side in sides], limits)
    path = cache / "pairs" / key
    records = open_pack(path, [(source.name, partial(_documents, source, sides, limits))], keeps_blank=True)
    if not records:
        raise DataError(f"{source.name} has no pair of texts: name another file")
    return records


class PairText(NamedTuple):
    """A pair: the words of both sides, divided by spaces, and both as they were read."""

    source_words: str
    target_words: str
    source: str
    target: str


def read_pair(text: Text) -> PairText:
    """Take a document of the pack apart."""
    return PairText(*text[:].decode().split("\n"))


def read_split(data: DataConfig, split: SplitName, cache: Path | None = None) -> list[PairText]:
    """Read every pair of a split, in order, as training divided the text."""
    from sublayer.data.texts import find_texts

    texts = find_texts(data, cache_folder(cache), is_utf8=True)
    return [read_pair(piece.document.read()) for pieces in texts.pieces(split) for piece in pieces]


def _documents(source: PairSource, sides: tuple[Side, Side], limits: Limits | None) -> Iterator[Found]:
    kept = PairFilter(*(limits or (None, None)))
    n_kept = n_taken = 0
    for line, left, right in source.read():
        words = sides[0].words(left), sides[1].words(right)
        if limits is not None and not kept.keeps(*words):
            continue
        n_kept += 1
        if source.takes(n_kept):
            n_taken += 1
            yield line, "\n".join((*map(" ".join, words), left, right)).encode()
    for reason, count in kept.dropped.most_common():
        sys.stderr.write(f"{source.name}: {count:,} pair(s) {reason} are left out\n")
    if source.count not in (None, n_taken):
        sys.stderr.write(f"{source.name}: {n_taken:,} pairs, where its papers have {source.count:,}\n")


def _of_corpus(name: str, data: DataConfig, cache: Path, split: SplitName) -> PairSource:
    assert data.source_language is not None and data.target_language is not None, "the text is pairs"
    found = find_corpus(name, split, data.source_language, data.target_language, cache)
    is_part = found.files.every is not None
    return PairSource(f"{name} {split}", found.identity, found.read, found.files.takes, found.count, is_part)


def _of_files(source: Path, target: Path, cache: Path) -> PairSource:
    for path in (source, target):
        if not path.is_file():
            raise DataError(f"{path} is not a file: name one with a text on each line")
    identity = ("lines", file_digest(source, cache), file_digest(target, cache))
    return PairSource(f"{source} and {target}", identity, partial(line_pairs, source, target))


def _of_records(entry: str, fields: Fields, cache: Path) -> PairSource:
    if entry.startswith(HUB):
        found = parse_hub(entry)
        return PairSource(entry, (str(found), fields.source, fields.target), partial(hub_pairs, found, fields))
    path = expanded(entry)
    if not path.is_file():
        raise DataError(f"{path} is not a file of pairs; two files are named by data.source_path and data.target_path")
    suffixes: Sequence[str] = [each for each in path.suffixes if each not in _PACKED_SUFFIXES]
    kind = _READERS.get(suffixes[-1].lower() if suffixes else "")
    if kind is None:
        raise DataError(
            f"{path}: pairs are read from {', '.join(_READERS)}; two files of lines are named by data.source_path and "
            "data.target_path"
        )
    readers: dict[str, Callable[[], Iterator[Pair]]] = {
        "tab": partial(tab_pairs, path),
        "json": partial(json_pairs, path, fields),
        "parquet": partial(parquet_pairs, path, fields),
    }
    return PairSource(entry, (kind, file_digest(path, cache), fields.source, fields.target), readers[kind])
