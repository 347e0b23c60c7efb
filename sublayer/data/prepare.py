"""Preparation of the [data] table: texts located, divided, encoded and stored as splits.

Also the training text of tokenizers, complete or sampled, and the losses of lossy tokenizers.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, combinations
from pathlib import Path
from typing import Any

from sublayer.config.data import (
    DEFAULT_SPLIT,
    GPT1,
    INTRINSIC,
    LETTERED_TOKENIZERS,
    PUBLISHED_SPLITS,
    TOKENIZERS,
    WATCHED,
    DataConfig,
    DocumentRule,
    SentenceRule,
    Sources,
    parse_split,
    watched_texts,
)
from sublayer.data.corpora import Source, fetched, find_sources, read_watched
from sublayer.data.parallel import find_pairs, read_pairs, sides_of
from sublayer.data.shards import VERSION, note_unfinished, write_store
from sublayer.data.store import Split, read_store
from sublayer.data.text.documents import Document, Reading, Records, identity_of, read_documents
from sublayer.data.text.ranges import (
    NEEDS_UTF8,
    SPLITS,
    DocumentRange,
    Parts,
    Shares,
    SplitName,
    TextUnit,
    WholeDocuments,
    check_unchanged,
    count_bytes,
    divide,
    sentence_cut,
    shared_document,
)
from sublayer.data.text.sentences import rule_identity, sentences_of
from sublayer.data.tokenizers.base import Tokenizer, after_newline, character_start
from sublayer.data.tokenizers.languages import BilingualTokenizer
from sublayer.data.tokenizers.named import (
    load_tokenizer,
    train_tokenizer,
    trainer_version,
    with_special_tokens,
)
from sublayer.data.tokenizers.subword import before_whitespace
from sublayer.errors import ConfigError, DataError
from sublayer.files.cache_folder import cache_folder, content_key, read_or_make, replacing
from sublayer.files.storage import expanded
from sublayer.numbers import count
from sublayer.system.machine import release_freed_memory
from sublayer.system.terminal import note, stage

_CUTS = {"bpe": before_whitespace, "wordpiece": before_whitespace, "characters": character_start}
_MOST_BYTES = {"unigram": 88 << 20}
_MOST_BYTES_OF_OTHERS = 256 << 20
"""Maximum number of bytes to train a tokenizer on: with them training takes less than 2 GiB."""
_WINDOW_BYTES = 1 << 20
"""Bytes of each sampled window; windows are evenly spread."""
_SEARCHED_BYTES = 64 << 10
_SAMPLES, _SAMPLE_BYTES = 16, 4096
"""Number and size in bytes of the samples on which a tokenizer's losses are measured."""
_WORD_CHARACTERS, _SHOWN_CHARACTERS = 16, 8
_MOST_NAMED = 3
"""Maximum number of special tokens that a note names."""
_KNOWN = 999 / 1000
"""Share of known characters in a text below which a note reports the unknown ones."""
_SAMPLE_VERSION = 1
"""Version of the sampling: increased whenever it chooses other parts of a text."""


@dataclass(frozen=True)
class DividedTexts:
    """Sources, divided into splits separately, and splits from other files."""

    all_sources: tuple[Source, ...]
    replaced: Mapping[SplitName, Source]
    """Splits read from other files."""
    shares: Shares
    """Shares of the splits in sources without published splits; replaced splits have none."""
    is_utf8: bool
    """Whether cuts must fall between characters."""
    sentences: TextUnit = "none"
    """Unit into which documents are divided."""

    def sources(self, split: SplitName) -> tuple[Source, ...]:
        """Return the sources of a split, in order."""
        return (self.replaced[split],) if split in self.replaced else self.all_sources

    def identity(self, split: SplitName) -> list[Any]:
        """Return the identity of a split as JSON, a part of cache keys, with minimal reading.

        Splits of equal identity hold the same text.
        """
        # All settings that determine the cuts of a source.
        shares = {name: str(share) for name, share in self.shares.items()}
        parts: list[Any] = [
            ["whole", identity_of(source.published[split])]
            if source.published
            else ["divided", shares, self.is_utf8, identity_of(source.documents)]
            for source in self.sources(split)
        ]
        if self.sentences != "none":
            parts.append(["sentences", *rule_identity(self.sentences)])
        return parts

    def has(self, split: SplitName) -> bool:
        """Return whether a split has any text."""
        is_published = any(source.published.get(split) for source in self.all_sources)
        return split in self.replaced or split in self.shares or is_published

    def is_cut(self, split: SplitName) -> bool:
        """Check whether a split is a byte range of each source's only document."""
        if split in self.replaced or len(self.shares) < 2:
            return False
        return all(
            not source.published and len(source.documents) == 1 for source in self.all_sources
        )

    def n_empty(self, split: SplitName) -> int:
        """Count the documents that were omitted for having no text.

        In sources without published splits they count towards the training split.
        """
        documents = [
            source.published[split] if source.published else source.documents
            for source in self.sources(split)
            if source.published or split == "train"
        ]
        return sum(records.n_empty for records in documents if isinstance(records, Records))

    def ranges(self, split: SplitName) -> list[Sequence[DocumentRange]]:
        """Return a split's document ranges by source; raise DataError if one is indivisible."""
        return [
            WholeDocuments(source.published[split])
            if source.published
            else self._divided[id(source)][split]
            for source in self.sources(split)
        ]

    @cached_property
    def _divided(self) -> dict[int, Parts]:
        # Sources are divided once, for all three splits.
        return {
            id(source): divide(
                source.documents,
                self.shares,
                name=source.name,
                is_utf8=self.is_utf8,
                sentences=self.sentences,
            )
            for source in self.all_sources
            if not source.published
        }


def find_texts(config: DataConfig, cache: Path, *, is_utf8: bool) -> DividedTexts:
    """Find every text that a recipe names.

    ``is_utf8`` says that the tokenizer reads UTF-8, so that no cut may divide a character.

    Raises ConfigError where fields contradict each other or a text is named twice, by two sources
    or for both training and scoring; DataError where a text is missing.
    """
    replaced: dict[SplitName, Source] = {}
    if config.is_parallel:
        train = None
        for split in SPLITS:
            pairs = find_pairs(config, cache, split)
            if pairs is None:
                continue
            # Every pair of a scored set counts.
            is_filtered = split == "train" or pairs.is_filtered
            limits = (config.max_words, config.max_words_ratio) if is_filtered else None
            records = pairs.pack(sides_of(config), cache, limits)
            if split == "train":
                train = Source(pairs.name, records)
            else:
                replaced[split] = Source(pairs.name, published={split: records})
        if train is None:
            raise ConfigError(
                "the recipe names no pairs to train on: "
                "give data.source_path and data.target_path, or data.path"
            )
        return DividedTexts((train,), replaced, _shares(config, replaced), True, "pair")
    reading = reading_of(config)
    sources = find_sources(config.path, config.corpus, cache, reading)
    if config.split is not None and all(source.published for source in sources):
        raise ConfigError(
            f"data.split = {config.split} has no effect: {sources[0].name} has published splits"
        )
    # A text named twice could be held out in one place and trained on in the other.
    for one, other in combinations([source for source in sources if source.documents], 2):
        for named, again in _shared(one.documents, other.documents):
            raise ConfigError(f"{named} and {again} are the same text, named twice: leave one out")
    elsewhere: dict[SplitName, str | None] = {"valid": config.valid_path, "test": config.test_path}
    for split, path in elsewhere.items():
        if path is None:
            continue
        field_ = f"data.{split}_path"
        is_watched = path in WATCHED
        documents = (
            fetched(path, cache, field=field_)
            if is_watched
            else read_documents(path, cache, reading)
        )
        for source in sources:
            for others in (source.documents, source.published.get("train", ())):
                for scored, trained in _shared(documents, others):
                    both = scored if scored == trained else f"{scored}, the same as {trained}"
                    raise ConfigError(
                        f"{field_} = {path} shares a file with the training text {source.name}: "
                        f"{both}; name other files in one of them, or leave out the shared files"
                    )
        replaced[split] = Source(path, published={split: documents})
    return DividedTexts(sources, replaced, _shares(config, replaced), is_utf8, config.sentences)


def _shared(documents: Sequence[Document], others: Sequence[Document]) -> Iterator[tuple[str, str]]:
    """Yield both names of each document that occurs in both sequences."""
    if documents and others and (shared := shared_document(documents, others)):
        yield documents[shared[0]].name, others[shared[1]].name


def whole_texts(
    documents: Mapping[str, Sequence[Document]], split: SplitName, sentences: SentenceRule = "none"
) -> DividedTexts:
    """Build texts of a single split; ``documents`` by source name."""
    sources = (Source(name, published={split: docs}) for name, docs in documents.items())
    return DividedTexts(tuple(sources), {}, {}, False, sentences)


def reading_of(config: DataConfig) -> Reading:
    """Return the reading settings of a recipe's documents."""
    return Reading(config.documents, config.text_field, is_clean=config.sentences != "none")


def _shares(config: DataConfig, replaced: Mapping[SplitName, Source]) -> Shares:
    fractions = parse_split(config.split or DEFAULT_SPLIT)
    shares = dict(zip(SPLITS, fractions, strict=True))
    # Training gets the shares of splits that come from other files.
    for split in replaced:
        shares["train"] += shares.pop(split)
    # A split without a share is not held out.
    return {split: share for split, share in shares.items() if share}


@dataclass(frozen=True)
class Data:
    """Splits of a run and their tokenizer."""

    tokenizer: Tokenizer
    train: Split
    valid: Split | None
    """Held-out split; None if nothing is held out for it."""
    test: Split | None
    """Held-out split; None if nothing is held out for it."""
    checksums: dict[str, str]
    """``TokenStore.sha256`` of each existing split, by ``train``, ``valid`` and ``test``, and the
    tokenizer's fingerprint, by ``tokenizer``."""
    watched: Mapping[str, Split] = field(default_factory=dict)
    """Texts that are scored during training, but choose no checkpoint, by the names of scores."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Digest of all that determines a split's examples (texts, their division and cuts, ids), by
    split and by ``watch.NAME``."""

    def sizes(self) -> dict[str, dict[str, int]]:
        """Count bytes, tokens, documents and omitted items of each split, for a record."""
        return {split.name: split.sizes() for split in self.splits()}

    def splits(self) -> list[Split]:
        """Return the existing splits, in order."""
        return [split for split in (self.train, self.valid, self.test) if split is not None]


def prepare(
    config: DataConfig,
    *,
    tokenizer: Tokenizer | None = None,
    cache: Path | None = None,
    check: Callable[[DividedTexts], None] = lambda texts: None,
    trains: bool = True,
) -> Data:
    """Find, split, encode and store a recipe's text, or open the stored splits.

    ``tokenizer`` replaces the recipe's, as when a run is continued; else the recipe's is trained,
    if at all, on the training split alone. With ``trains``, a note reports the words that the
    tokenizer's rules change. ``cache`` is the folder of stored data, by default ``cache_folder()``.
    ``check`` raises for unsuitable texts, before they are tokenized.

    Raises ConfigError where settings contradict each other, DataError where a text is missing,
    damaged, too short or not in the tokenizer's encoding, or the disk is full.
    """
    folder = cache_folder(cache)
    kind = config.tokenizer if tokenizer is None else tokenizer.kind
    reading = reading_of(config)
    watched_documents = {}
    for name, text in watched_texts(config.watch).items():
        # Read first, so that a failed download precedes the reading of a long text.
        with stage(f"reading the watched text {text}"):
            watched_documents[name] = read_watched(text, folder, reading)
    with stage(f"reading {_described(config)}"):
        texts = find_texts(config, folder, is_utf8=kind != "bytes")
        check(texts)
    if tokenizer is None:
        tokenizer = _tokenizer(config, texts, folder)
    else:
        tokenizer = _for_text(config, tokenizer)
    splits: dict[SplitName, Split] = {}
    watched: dict[str, Split] = {}
    digests: dict[str, str] = {}
    with stage("tokenizing the text"):
        for split in SPLITS:
            if split == "train" or texts.has(split):
                is_train = split == "train"
                splits[split] = _split(split, texts, tokenizer, folder, trains=trains and is_train)
                digests[split] = _digest(split, texts, splits[split])
        for name, documents in watched_documents.items():
            whole = whole_texts({name: documents}, "valid", config.sentences)
            shown = f"the watched text {name}"
            watched[name] = _split("valid", whole, tokenizer, folder, shown=shown)
            digests[f"watch.{name}"] = _digest("valid", whole, watched[name])
    checksums = {"tokenizer": tokenizer.fingerprint}
    checksums |= {split.name: split.store.sha256 for split in splits.values()}
    return Data(
        tokenizer,
        splits["train"],
        splits.get("valid"),
        splits.get("test"),
        checksums,
        watched,
        digests,
    )


def _digest(name: SplitName, texts: DividedTexts, split: Split) -> str:
    return content_key(texts.identity(name), split.store.crc32s)


def _described(config: DataConfig) -> str:
    if config.corpus == "python":
        return "the prose of this Python installation"
    if config.corpus is not None:
        return f"the corpus {config.corpus}"
    return "the text"


def prepare_tokenizer(config: DataConfig, *, cache: Path | None = None) -> Tokenizer:
    """Build or load a recipe's tokenizer without preparing its splits.

    A tokenizer that must be trained reads the training split; one that was already trained on the
    same text is read from the cache.

    Raises ConfigError and DataError as ``prepare`` does.
    """
    folder = cache_folder(cache)
    if config.tokenizer not in TOKENIZERS:
        return _for_text(config, tokenizer_of_file(config))
    with stage(f"reading {_described(config)}"):
        texts = find_texts(config, folder, is_utf8=config.tokenizer != "bytes")
    tokenizer = _tokenizer(config, texts, folder)
    note_losses(
        "the text", samples_of(texts.ranges("train"), texts.sentences), tokenizer, trains=True
    )
    return tokenizer


def prepare_text(
    tokenizer: Tokenizer,
    *,
    path: Sources | None = None,
    corpus: str | None = None,
    split: SplitName = "test",
    sentences: SentenceRule = "none",
    documents: DocumentRule | None = None,
    text_field: str = "text",
    shares: str | None = None,
    cache: Path | None = None,
) -> Split:
    """Encode a text for scoring: all of ``path``, or one split of a named corpus.

    The corpus albert-intrinsic, whose files ``path`` names, is encoded completely; with any other
    corpus ``path`` is ignored. Of a path with published splits (lm1b's release) ``split`` is
    encoded.

    ``sentences``, ``documents`` and ``text_field`` are the fields of ``[data]``. ``shares`` is its
    field ``split``, for a corpus without published splits, so that a model is scored on the text
    that was held out from its training.

    Raises ConfigError if neither is given, DataError where the text is missing, damaged, or shorter
    than two tokens.
    """
    folder = cache_folder(cache)
    shown = None
    if corpus is not None and corpus != INTRINSIC:
        share = None if corpus in PUBLISHED_SPLITS else shares
        config = DataConfig(
            corpus=corpus,
            split=share,
            sentences=sentences,
            documents=documents,
            text_field=text_field,
        )
        texts = find_texts(config, folder, is_utf8=tokenizer.kind != "bytes")
    else:
        reading = Reading(documents, text_field, is_clean=sentences != "none")
        by_source = {}
        for source in find_sources(path, corpus, folder, reading):
            by_source[source.name] = source.documents or source.published[split]
        texts = whole_texts(by_source, split, sentences)
        shown = f"the text of {path}" if isinstance(path, str) else None
    encoded = _split(split, texts, tokenizer, folder, shown=shown)
    if marks := Counter(encoded.store.marks):
        note(describe_marks(shown or "the text", marks, tokenizer, trains=False))
    return encoded


class TrainingText:
    """Training text of a tokenizer: the training split, or a sample of it."""

    def __init__(
        self, sources: Sequence[Sequence[DocumentRange]], kind: str, unit: TextUnit
    ) -> None:
        self._sources = sources
        self._kind = kind
        self._unit = unit
        self._n_bytes = sum(map(count_bytes, sources))
        self._most = _MOST_BYTES.get(kind, _MOST_BYTES_OF_OTHERS)

    @property
    def identity(self) -> list[Any]:
        """Return the identity of the sample as JSON; empty if it is the whole text."""
        return [["sample", self._most, _SAMPLE_VERSION]] if self._n_bytes > self._most else []

    def texts(self) -> Iterator[bytes]:
        """Return the texts to train a tokenizer on, with a note if they are a sample.

        Raises DataError for text that is not UTF-8 where the tokenizer requires UTF-8.
        """
        ranges: Iterable[DocumentRange] = chain.from_iterable(self._sources)
        if self._n_bytes > self._most:
            note(
                f"the {self._kind} tokenizer is trained on {self._most / 1e6:,.0f} of the "
                f"{self._n_bytes / 1e6:,.0f} MB of the training text, in evenly spread samples"
            )
            ranges = sampled(ranges, self._n_bytes, self._most)
        if self._unit == "none":
            return _chunks(ranges, self._kind)
        return (
            "".join(f"{sentence}\n" for sentence in sentences).encode()
            for part in ranges
            for sentences in sentences_of(part, self._unit)
        )

    def check_unchanged(self) -> None:
        """Raise DataError where a file changed since its digest was computed."""
        for ranges in self._sources:
            check_unchanged(ranges)


def sampled(ranges: Iterable[DocumentRange], n_bytes: int, most: int) -> Iterator[DocumentRange]:
    """Sample about ``most`` of the ``n_bytes`` of ranges, in windows spread evenly over them.

    A document no longer than a window is taken completely if it begins in one; of a longer document
    the windows are taken, cut after a blank line or a line where possible.
    """
    n_windows = most // _WINDOW_BYTES
    position = 0
    for part in ranges:
        stop = part.end
        size = stop - part.start
        if size <= _WINDOW_BYTES:
            window = position * n_windows // n_bytes
            if position < -(-window * n_bytes // n_windows) + _WINDOW_BYTES:
                yield part
        else:
            text = part.document.read()
            offset = part.start - position
            window = position * n_windows // n_bytes
            while (first := -(-window * n_bytes // n_windows) + offset) < stop:
                bounds = []
                for edge in (first, first + _WINDOW_BYTES):
                    near = min(max(edge, part.start), stop)
                    least = max(part.start, near - _SEARCHED_BYTES)
                    is_edge = near in (part.start, stop)
                    bounds.append(near if is_edge else sentence_cut(text, near, least))
                if bounds[0] < bounds[1]:
                    yield DocumentRange(part.document, *bounds)
                window += 1
        position += size


def _chunks(ranges: Iterable[DocumentRange], kind: str) -> Iterator[bytes]:
    cut = _CUTS.get(kind, after_newline)
    for part in ranges:
        for start, chunk in part.chunks(cut):
            if kind != "bpe":
                try:
                    chunk.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise part.not_utf8(start + error.start, NEEDS_UTF8) from error
            yield chunk


def _tokenizer(config: DataConfig, texts: DividedTexts, cache: Path) -> Tokenizer:
    kind = config.tokenizer
    if kind not in TOKENIZERS:
        return _for_text(config, tokenizer_of_file(config))
    if kind == "bytes":
        return _for_text(config, train_tokenizer(kind, ()))
    text = texts.identity("train")
    # The rules that divide pairs into words also affect the trained tokenizer.
    languages: list[Any] = []
    if config.is_parallel:
        languages = ["as written", *(side.content() for side in sides_of(config))]
    letters = config.letter_rules()
    settings: dict[str, Sequence[Any] | None] = {
        "sentinels": [config.sentinels] if config.sentinels else None,
        "merges": None if config.merges is None else [config.merges],
        "letters": [letters, 1]
        if kind in LETTERED_TOKENIZERS and set(letters.values()) != {None}
        else None,
        "normalization": [config.normalization or "published"] if kind == GPT1 else None,
        "special_tokens": None if config.special_tokens is None else [config.special_tokens],
    }
    identity = [VERSION, kind, config.vocab_size, trainer_version(kind), text, *languages]
    identity += [[name, *values] for name, values in settings.items() if values is not None]
    training = TrainingText(texts.ranges("train"), kind, texts.sentences)
    path = cache / "tokenizers" / f"{content_key(*identity, *training.identity)}.json"
    # The file is read back, so that new and cached tokenizers are identical.
    return read_or_make(
        path,
        "trains the same tokenizer",
        partial(_read_cached, path),
        partial(_train, config, training, path),
    )


def _train(config: DataConfig, training: TrainingText, path: Path) -> None:
    kind = config.tokenizer
    with stage(f"training a {kind} tokenizer on the training text"):
        trained = trained_tokenizer(config, training.texts())
    release_freed_memory()
    training.check_unchanged()
    with replacing(path) as file:
        file.write(_for_text(config, trained).serialize())


def _read_cached(path: Path) -> Tokenizer | None:
    if not path.is_file():
        return None
    try:
        return load_tokenizer(path)
    except DataError:
        # A damaged cache file is written anew.
        path.unlink(missing_ok=True)
        return None


def trained_tokenizer(config: DataConfig, texts: Iterable[bytes]) -> Tokenizer:
    """Train a recipe's tokenizer on texts; raise ConfigError and DataError if that fails."""
    return train_tokenizer(
        config.tokenizer,
        texts,
        vocab_size=config.vocab_size,
        **config.letter_rules(),
        merges=config.merges,
        sentinels=config.sentinels,
        normalization=config.normalization,
    )


def tokenizer_of_file(config: DataConfig) -> Tokenizer:
    """Read a recipe's tokenizer file; raise ConfigError and DataError if that fails."""
    return load_tokenizer(
        expanded(config.tokenizer),
        sentinels=config.sentinels,
        normalization=config.normalization,
        special_tokens=config.special_tokens or "file",
    )


def _for_text(config: DataConfig, vocabulary: Tokenizer) -> Tokenizer:
    """Set how special tokens are read; for a text of pairs, add both languages' rules."""
    if config.special_tokens is not None:
        vocabulary = with_special_tokens(vocabulary, config.special_tokens)
    if not config.is_parallel:
        return vocabulary
    if isinstance(vocabulary, BilingualTokenizer):
        vocabulary = vocabulary.vocabulary
    return BilingualTokenizer(vocabulary, *sides_of(config))


def _split(
    name: SplitName,
    texts: DividedTexts,
    tokenizer: Tokenizer,
    cache: Path,
    *,
    shown: str | None = None,
    trains: bool = False,
) -> Split:
    """Open a split's tokens, encoding them first if needed; errors name it ``shown``, if given."""
    key = content_key(VERSION, tokenizer.fingerprint, name, texts.identity(name))
    path = cache / "tokens" / key
    store = read_store(path)
    if store is None:
        if name == "train":
            note_unfinished(path)
        write_store(path, texts.ranges(name), tokenizer, texts.sentences)
        store = read_store(path)
        assert store is not None, f"a store just written must be valid: {path}"
    names = tuple(source.name for source in texts.sources(name))
    if store.n_tokens < 2:
        called = shown or f"the {name} split of {' and '.join(names)}"
        raise DataError(
            f"{called} has {count(store.n_tokens, 'token')}, but scoring needs at least 2: give "
            "a longer text"
        )
    whose = shown or f"{' and '.join(names)}, {name} split"
    note_losses(whose, samples_of(texts.ranges(name), texts.sentences), tokenizer, trains=trains)
    weights = tuple(
        source.weight
        for source in texts.sources(name)
        if name == "train" and source.weight is not None
    )
    # The function reads the texts found above, without searching for them again.
    is_pairs = texts.sentences == "pair"
    return Split(
        name=name,
        store=store,
        tokenizer=tokenizer,
        sources=names,
        is_cut=texts.is_cut(name),
        weights=weights or None,
        n_empty_documents=texts.n_empty(name),
        read_pairs=(lambda: read_pairs(texts.ranges(name))) if is_pairs else None,
    )


def samples_of(sources: Sequence[Sequence[DocumentRange]], unit: TextUnit) -> list[bytes]:
    """Return up to about 64 kB of a text, in evenly spread samples.

    Samples of pairs are the words of both sides, as encoded, not the original lines.
    """
    ranges = list(chain.from_iterable(_spread(source, _SAMPLES) for source in sources))
    parts = []
    for part in _spread(ranges, _SAMPLES):
        text = part.document.read()
        if unit == "pair":
            parts.append(b"\n".join(text[:].split(b"\n")[:2]))
            continue
        stop = len(text) if part.stop is None else part.stop
        n_windows = -(-_SAMPLES // min(len(ranges), _SAMPLES))
        step = max(_SAMPLE_BYTES, (stop - part.start) // n_windows)
        parts += [text[at : min(at + _SAMPLE_BYTES, stop)] for at in range(part.start, stop, step)]
    return parts


def note_losses(shown: str, texts: Iterable[bytes], tokenizer: Tokenizer, *, trains: bool) -> None:
    """Report, by a note, a tokenizer that knows fewer than 999 of 1,000 characters of a text.

    For training text, also report the share of the words in ``texts`` that its rules change, and
    the share that become another word of the text.
    """
    if tokenizer.is_lossless:
        return
    words: Counter[str] = Counter()
    for text in texts:
        for chunk in text.decode(errors="ignore").split():
            for at in range(0, len(chunk), _WORD_CHARACTERS):
                words[chunk[at : at + _WORD_CHARACTERS]] += 1
    unknown: Counter[str] = Counter()
    written: dict[str, str] = {}
    rows = tokenizer.encode_many([word.encode() for word in words])
    for (word, n_times), ids in zip(words.items(), rows, strict=True):
        is_known = ids != (-1 if tokenizer.unk_id is None else tokenizer.unk_id)
        decoded = "".join(tokenizer.decode(ids[is_known]).decode(errors="replace").split())
        if is_known.all():
            written[word] = decoded
        else:
            unknown[word] = n_times * max(1, len(word) - len(decoded))
    n_characters = sum(len(word) * n_times for word, n_times in words.items())
    known_share = 1 - unknown.total() / max(1, n_characters)
    if known_share < _KNOWN:
        first = ", ".join(word[:_SHOWN_CHARACTERS] for word, _ in unknown.most_common(3))
        note(
            f"{shown}: the {tokenizer.kind} tokenizer knows {known_share:.1%} of the characters; "
            f"the others, as in {first}, become the unknown token. A larger vocabulary trained on "
            "such text, or data.tokenizer = bytes or bpe, covers them"
        )
    changed = Counter({word: words[word] for word, form in written.items() if form != word})
    if not trains or not changed:
        return
    forms = Counter(written.values())
    n_merged = sum(n for word, n in changed.items() if forms[written[word]] > 1)
    [(example, _)] = changed.most_common(1)
    is_choice = tokenizer.kind in LETTERED_TOKENIZERS
    note(
        f"{shown}: the {tokenizer.kind} tokenizer changes {changed.total() / words.total():.1%} of "
        f"the words ({example} to {written[example]}), "
        f"{n_merged / words.total():.1%} to another word of the text"
        f"{': see data.keep_accents and data.lowercase for training a vocabulary' * is_choice}"
    )


def describe_marks(shown: str, marks: Counter[str], tokenizer: Tokenizer, *, trains: bool) -> str:
    """Describe the reading of special tokens' names in a text, with the most frequent names.

    For training text, the setting that changes the reading is named as well.
    """
    named = [f"{name} {count(n, 'time')}" for name, n in marks.most_common(_MOST_NAMED)]
    n_others = len(marks) - len(named)
    others = f" and {count(n_others, 'other')}" if n_others else ""
    read, other = "letters", "tokens reads each as its token"
    if tokenizer.reads_marks:
        read, other = "these tokens", "text reads them as letters"
    remedy = f" (data.special_tokens = {other})" if trains else ""
    return (
        f"{shown} names special tokens, {', '.join(named)}{others}: they are read as {read}{remedy}"
    )


def _spread(ranges: Sequence[DocumentRange], most: int) -> Sequence[DocumentRange]:
    return ranges[:: max(1, -(-len(ranges) // most))]
