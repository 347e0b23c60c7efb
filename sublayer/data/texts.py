"""The texts of a recipe before encoding: which ranges form each split, and their identity."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from sublayer.config.data import DataConfig, SentenceRule
from sublayer.config.texts import DEFAULT_SPLIT, WATCHED, parse_split
from sublayer.data.corpora.named import find_sources
from sublayer.data.corpora.source import Source
from sublayer.data.corpora.watched import fetched
from sublayer.data.parallel.sources import find_pairs, pack_pairs, sides_of
from sublayer.data.text.content_order import shared_document
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.document_store import Records, identity_of
from sublayer.data.text.documents import Reading, read_documents
from sublayer.data.text.files import Document
from sublayer.data.text.sentences import TextUnit, rule_identity
from sublayer.data.text.splitting import SPLITS, Parts, Shares, SplitName, divide
from sublayer.data.text.whole_documents import WholeDocuments
from sublayer.errors import ConfigError


class Texts:
    """Sources, and the splits that are taken from elsewhere (``replaced``).

    Each source is divided on its own, by ``shares`` or as published; ``shares`` has no split that
    is replaced. ``is_utf8`` says whether cuts are made between characters rather than anywhere,
    ``sentences`` how the text is cut further.
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
        """Return the sources of a split, in order."""
        if split in self._replaced:
            return (self._replaced[split],)
        return self._sources

    def identity(self, split: SplitName) -> list[Any]:
        """Return what identifies a split, as JSON, reading no more than that takes.

        Splits of one identity hold the same text; it is part of the keys of the cache.
        """
        sources = self.sources(split)
        parts: list[Any] = [self._identity(source, split) for source in sources]
        if self.sentences != "none":
            parts.append(["sentences", *rule_identity(self.sentences)])
        return parts

    def has(self, split: SplitName) -> bool:
        """Return whether a split has any text."""
        if split in self._replaced or split in self._shares:
            return True
        return any(source.published.get(split) for source in self._sources)

    def is_cut(self, split: SplitName) -> bool:
        """Return whether a split is contiguous bytes of documents whose others are elsewhere."""
        if split in self._replaced or len(self._shares) < 2:
            return False
        return all(not source.published and len(source.documents) == 1 for source in self._sources)

    def n_empty(self, split: SplitName) -> int:
        """Count the documents left out for having no text.

        Of those to be divided they count with the training split.
        """
        n_empty = 0
        for source in self.sources(split):
            documents: Sequence[Document] = ()
            if source.published:
                documents = source.published[split]
            elif split == "train":
                documents = source.documents
            if isinstance(documents, Records):
                n_empty += documents.n_empty
        return n_empty

    def ranges(self, split: SplitName) -> list[Sequence[DocumentRange]]:
        """Return the ranges of each of a split's sources; raise DataError if one is indivisible."""
        return [self._divided(source)[split] for source in self.sources(split)]

    def _identity(self, source: Source, split: SplitName) -> list[Any]:
        if source.published:
            documents = source.published[split]
            return ["whole", identity_of(documents)]
        # All that decides where the source is cut.
        shares = {name: str(share) for name, share in self._shares.items()}
        return ["divided", shares, self._is_utf8, identity_of(source.documents)]

    def _divided(self, source: Source) -> Parts:
        if source.published:
            parts: dict[SplitName, Sequence[DocumentRange]] = {}
            for split, documents in source.published.items():
                parts[split] = WholeDocuments(documents)
            return parts
        # Divided once: the three splits ask for it in turn.
        key = id(source)
        if key not in self._parts:
            self._parts[key] = divide(
                source.documents,
                self._shares,
                name=source.name,
                is_utf8=self._is_utf8,
                sentences=self.sentences,
            )
        return self._parts[key]


def find_texts(config: DataConfig, cache: Path, *, is_utf8: bool) -> Texts:
    """Find every text that a recipe names.

    ``is_utf8``: the tokenizer reads UTF-8, so that no cut may divide a character.

    Raises ConfigError where fields contradict each other or a text is named twice, for two sources
    or for training and scoring; DataError where a text is missing.
    """
    if config.is_parallel:
        return _find_pair_texts(config, cache)
    reading = reading_of(config)
    sources = find_sources(config.path, config.corpus, cache, reading)
    if config.split is not None and all(source.published for source in sources):
        raise ConfigError(
            f"data.split = {config.split} has no effect: {sources[0].name} has a published split"
        )
    _check_distinct(sources)
    replaced: dict[SplitName, Source] = {}
    elsewhere: dict[SplitName, str | None] = {"valid": config.valid_path, "test": config.test_path}
    for split, path in elsewhere.items():
        if path is None:
            continue
        if path in WATCHED:
            documents = fetched(path, cache, field=f"data.{split}_path")
        else:
            documents = read_documents(path, cache, reading)
        _check_apart(f"data.{split}_path = {path}", documents, sources)
        replaced[split] = Source(path, published={split: documents})
    shares = _shares(config, replaced)
    return Texts(sources, replaced, shares, is_utf8=is_utf8, sentences=config.sentences)


def _find_pair_texts(config: DataConfig, cache: Path) -> Texts:
    by_split: dict[SplitName, Source] = {}
    sides = sides_of(config)
    for split in SPLITS:
        source = find_pairs(config, cache, split)
        if source is None:
            continue
        # What is scored is scored whole.
        limits = None
        if split == "train" or source.is_filtered:
            limits = (config.max_words, config.max_words_ratio)
        documents = pack_pairs(source, sides, cache, limits)
        by_split[split] = Source(source.name, documents)
    if "train" not in by_split:
        raise ConfigError(
            "there are no pairs to train on: "
            "give data.source_path and data.target_path, or data.path"
        )
    train = by_split.pop("train")
    replaced: dict[SplitName, Source] = {}
    for split, each in by_split.items():
        replaced[split] = Source(each.name, published={split: each.documents})
    return Texts((train,), replaced, _shares(config, replaced), is_utf8=True, sentences="pair")


def whole_texts(
    documents: Mapping[str, Sequence[Document]], split: SplitName, sentences: SentenceRule = "none"
) -> Texts:
    """Build texts of which one split is everything; ``documents`` are by the name of a source."""
    sources = []
    for name, of_source in documents.items():
        source = Source(name, published={split: of_source})
        sources.append(source)
    return Texts(tuple(sources), {}, {}, is_utf8=False, sentences=sentences)


def reading_of(config: DataConfig) -> Reading:
    """Return how a recipe's documents are read."""
    return Reading(config.documents, config.text_field, is_clean=config.sentences != "none")


def _shares(config: DataConfig, replaced: Mapping[SplitName, Source]) -> Shares:
    fractions = parse_split(config.split or DEFAULT_SPLIT)
    shares = dict(zip(SPLITS, fractions, strict=True))
    # Training takes the shares of splits that come from elsewhere.
    for split in replaced:
        shares["train"] += shares.pop(split)
    # What has no share is not held out.
    return {split: share for split, share in shares.items() if share}


def _check_distinct(sources: tuple[Source, ...]) -> None:
    # Divided twice, a text could be held out in one place and trained on in the other.
    divided = [source for source in sources if source.documents]
    for one, other in combinations(divided, 2):
        shared = _shared(one.documents, other.documents)
        if shared:
            raise ConfigError(
                f"{shared[0]} and {shared[1]} are the same text, named twice: leave one out"
            )


def _check_apart(setting: str, documents: Sequence[Document], sources: tuple[Source, ...]) -> None:
    for source in sources:
        for others in (source.documents, source.published.get("train", ())):
            shared = _shared(documents, others)
            if shared is None:
                continue
            scored, trained = shared
            both = scored if scored == trained else f"{scored}, the same as {trained}"
            raise ConfigError(
                f"{setting} is also read for training, in {source.name}: {both}; "
                "name other files in one, or leave out what is in both"
            )


def _shared(documents: Sequence[Document], others: Sequence[Document]) -> tuple[str, str] | None:
    """Return the names of a document that is in both, if there is one."""
    if not (documents and others):
        return None
    shared = shared_document(documents, others)
    if shared is None:
        return None
    number, other = shared
    return documents[number].name, others[other].name
