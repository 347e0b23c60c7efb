"""The texts of a recipe, before any of them is encoded: which pieces make each split, and what they are made of."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.config.data import DEFAULT_SPLIT, DataConfig, SentenceRule, parse_split
from sublayer.data.corpus import Source, find_sources
from sublayer.data.divide import SPLITS, Parts, Shares, SplitName, Wholes, divide
from sublayer.data.documents import Reading, read_documents
from sublayer.data.pack import Records, digests_of, identity_of
from sublayer.data.pair_texts import find_pairs, pack_pairs, sides_of
from sublayer.data.piece import Piece
from sublayer.data.sentences import TextUnit, rule_identity
from sublayer.data.text import Document
from sublayer.errors import ConfigError


class Texts:
    """Sources, and the splits that are taken from elsewhere (``replaced``).

    Each source is divided on its own, by ``shares`` or as published; ``is_utf8`` says whether cuts are made between
    characters rather than anywhere, ``sentences`` how the text is cut further.
    """

    def __init__(
        self,
        sources: tuple[Source, ...],
        replaced: Mapping[SplitName, Source],
        shares: Shares,
        *,
        is_utf8: bool,
        sentences: TextUnit = "none",
    ) -> None:
        self._sources = sources
        self._replaced = replaced
        self._shares = shares
        self._is_utf8 = is_utf8
        self.sentences: TextUnit = sentences
        self._parts: dict[int, Parts] = {}

    def sources(self, split: SplitName) -> tuple[Source, ...]:
        """Give the sources of a split, in order."""
        return (self._replaced[split],) if split in self._replaced else self._sources

    def identity(self, split: SplitName) -> list[Any]:
        """Say what a split is made of, without reading more than is needed to name it: JSON."""
        found: list[Any] = [self._identity(source, split) for source in self.sources(split)]
        return found if self.sentences == "none" else [*found, ["sentences", *rule_identity(self.sentences)]]

    def n_empty(self, split: SplitName) -> int:
        """Count the documents without text that were left out; of those to be divided, with the training split."""
        found = [
            source.published[split] if source.published else source.documents if split == "train" else ()
            for source in self.sources(split)
        ]
        return sum(documents.n_empty for documents in found if isinstance(documents, Records))

    def pieces(self, split: SplitName) -> list[Sequence[Piece]]:
        """Give the pieces of each of a split's sources. Raises DataError where a source cannot be divided."""
        return [self._divided(source)[split] for source in self.sources(split)]

    def _identity(self, source: Source, split: SplitName) -> list[Any]:
        if source.published:
            return ["whole", identity_of(source.published[split])]
        shares = {name: str(share) for name, share in self._shares.items()}
        return ["divided", shares, self._is_utf8, identity_of(source.documents)]

    def _divided(self, source: Source) -> Parts:
        if source.published:
            return {split: Wholes(documents) for split, documents in source.published.items()}
        if id(source) not in self._parts:
            self._parts[id(source)] = divide(
                source.documents, self._shares, name=source.name, is_utf8=self._is_utf8, sentences=self.sentences
            )
        return self._parts[id(source)]


def find_texts(config: DataConfig, cache: Path, *, is_utf8: bool) -> Texts:
    """Find every text that a recipe names.

    Raises ConfigError where fields contradict each other, DataError where a text is missing.
    """
    if config.is_parallel:
        return _find_pair_texts(config, cache)
    reading = reading_of(config)
    sources = find_sources(config.path, config.corpus, cache, reading)
    if config.split is not None and all(source.published for source in sources):
        raise ConfigError(f"data.split = {config.split} has no effect: {sources[0].name} has a published split")
    _check_distinct(sources)
    replaced: dict[SplitName, Source] = {}
    elsewhere: dict[SplitName, str | None] = {"valid": config.valid_path, "test": config.test_path}
    for split, path in elsewhere.items():
        if path is not None:
            documents = read_documents(path, cache, reading)
            _check_apart(f"data.{split}_path = {path}", documents, sources)
            replaced[split] = Source(path, published={split: documents})
    return Texts(sources, replaced, _shares(config, replaced), is_utf8=is_utf8, sentences=config.sentences)


def _find_pair_texts(config: DataConfig, cache: Path) -> Texts:
    found: dict[SplitName, Source] = {}
    sides = sides_of(config)
    for split in SPLITS:
        source = find_pairs(config, cache, split)
        if source is not None:
            # What is scored is scored whole.
            is_filtered = split == "train" or source.is_filtered
            limits = (config.longest_words, config.words_ratio) if is_filtered else None
            found[split] = Source(source.name, pack_pairs(source, sides, cache, limits))
    if "train" not in found:
        raise ConfigError("there are no pairs to train on: give data.source_path and data.target_path, or data.path")
    train = found.pop("train")
    replaced = {split: Source(each.name, published={split: each.documents}) for split, each in found.items()}
    return Texts((train,), replaced, _shares(config, replaced), is_utf8=True, sentences="pair")


def whole_texts(
    documents: Mapping[str, Sequence[Document]], split: SplitName, sentences: SentenceRule = "none"
) -> Texts:
    """Make texts of which one split is everything."""
    sources = tuple(Source(name, published={split: found}) for name, found in documents.items())
    return Texts(sources, {}, {}, is_utf8=False, sentences=sentences)


def reading_of(config: DataConfig) -> Reading:
    """Give how a recipe's documents are read."""
    return Reading(config.documents, config.text_field, is_clean=config.sentences != "none")


def _shares(config: DataConfig, replaced: Mapping[SplitName, Source]) -> Shares:
    shares = dict(zip(SPLITS, parse_split(config.split or DEFAULT_SPLIT), strict=True))
    freed = sum((shares.pop(split) for split in replaced), Fraction(0))
    return {**shares, "train": shares["train"] + freed}


def _check_distinct(sources: tuple[Source, ...]) -> None:
    # Divided twice, a text could be held out in one place and trained on in the other.
    divided = [source for source in sources if source.documents]
    for one, other in combinations(divided, 2):
        found = _shared(one.documents, other.documents)
        if found:
            raise ConfigError(f"{found[0]} and {found[1]} are the same text, named twice: leave one out")


def _check_apart(setting: str, documents: Sequence[Document], sources: tuple[Source, ...]) -> None:
    for source in sources:
        for others in (source.documents, source.published.get("train", ())):
            found = _shared(documents, others) if others else None
            if found:
                both = found[0] if found[0] == found[1] else f"{found[0]}, the same as {found[1]}"
                raise ConfigError(
                    f"{setting} is also read for training, in {source.name}: {both}; name other files in one, or leave "
                    "out what is in both"
                )


def _shared(documents: Sequence[Document], others: Sequence[Document]) -> tuple[str, str] | None:
    _, places, other_places = np.intersect1d(digests_of(documents), digests_of(others), return_indices=True)
    return (documents[places[0]].name, others[other_places[0]].name) if len(places) else None
