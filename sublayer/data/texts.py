"""The texts of a recipe, before any of them is encoded: which pieces make each split, and what they are made of."""

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from sublayer.config.data import DEFAULT_SPLIT, DataConfig, parse_split
from sublayer.data.corpus import Source, find_sources
from sublayer.data.divide import SPLITS, Parts, Shares, SplitName, divide
from sublayer.data.piece import Piece
from sublayer.data.text import Document, read_path
from sublayer.errors import ConfigError


class Texts:
    """Sources, and the splits that are taken from elsewhere (``replaced``).

    Each source is divided on its own, by ``shares`` or as published; ``is_utf8`` says whether cuts are made between
    characters rather than anywhere.
    """

    def __init__(
        self, sources: tuple[Source, ...], replaced: Mapping[SplitName, Source], shares: Shares, *, is_utf8: bool
    ) -> None:
        self._sources = sources
        self._replaced = replaced
        self._shares = shares
        self._is_utf8 = is_utf8
        self._parts: dict[int, Parts] = {}

    def sources(self, split: SplitName) -> tuple[Source, ...]:
        """Give the sources of a split, in order."""
        return (self._replaced[split],) if split in self._replaced else self._sources

    def identity(self, split: SplitName) -> list[Any]:
        """Say what a split is made of, without reading more than is needed to name it: JSON."""
        return [self._identity(source, split) for source in self.sources(split)]

    def pieces(self, split: SplitName) -> list[tuple[Piece, ...]]:
        """Give the pieces of each of a split's sources. Raises DataError where a source cannot be divided."""
        return [self._divided(source)[split] for source in self.sources(split)]

    def _identity(self, source: Source, split: SplitName) -> list[Any]:
        if source.published:
            return ["whole", [document.digest() for document in source.published[split]]]
        shares = {name: str(share) for name, share in self._shares.items()}
        return ["divided", shares, self._is_utf8, [document.digest() for document in source.documents]]

    def _divided(self, source: Source) -> Parts:
        if source.published:
            return {split: tuple(map(Piece, documents)) for split, documents in source.published.items()}
        if id(source) not in self._parts:
            self._parts[id(source)] = divide(source.documents, self._shares, name=source.name, is_utf8=self._is_utf8)
        return self._parts[id(source)]


def find_texts(config: DataConfig, cache: Path, *, is_utf8: bool) -> Texts:
    """Find every text that a recipe names.

    Raises ConfigError where fields contradict each other, DataError where a text is missing.
    """
    sources = find_sources(config.path, config.corpus, cache)
    if config.split is not None and all(source.published for source in sources):
        raise ConfigError(f"data.split = {config.split} has no effect: {sources[0].name} has a published split")
    _check_distinct(sources)
    replaced: dict[SplitName, Source] = {}
    elsewhere: dict[SplitName, str | None] = {"valid": config.valid_path, "test": config.test_path}
    for split, path in elsewhere.items():
        if path is not None:
            documents = read_path(path, cache)
            _check_apart(f"data.{split}_path = {path}", documents, sources)
            replaced[split] = Source(path, published={split: documents})
    return Texts(sources, replaced, _shares(config, replaced), is_utf8=is_utf8)


def whole_texts(documents: Mapping[str, tuple[Document, ...]], split: SplitName) -> Texts:
    """Make texts of which one split is everything."""
    sources = tuple(Source(name, published={split: found}) for name, found in documents.items())
    return Texts(sources, {}, {}, is_utf8=False)


def _shares(config: DataConfig, replaced: Mapping[SplitName, Source]) -> Shares:
    shares = dict(zip(SPLITS, parse_split(config.split or DEFAULT_SPLIT), strict=True))
    freed = sum((shares.pop(split) for split in replaced), Fraction(0))
    return {**shares, "train": shares["train"] + freed}


def _check_distinct(sources: tuple[Source, ...]) -> None:
    # Divided twice, a text could be held out in one place and trained on in the other.
    found: dict[str, str] = {}
    for source in sources:
        own = {document.digest(): document.name for document in source.documents}
        for digest in own.keys() & found.keys():
            raise ConfigError(f"{found[digest]} and {own[digest]} are the same text, named twice: leave one out")
        found |= own


def _check_apart(setting: str, documents: tuple[Document, ...], sources: tuple[Source, ...]) -> None:
    held_out = {document.digest() for document in documents}
    for source in sources:
        for document in (*source.documents, *source.published.get("train", ())):
            if document.digest() in held_out:
                raise ConfigError(f"{setting} is also read for training, in {source.name}: name other files in one")
