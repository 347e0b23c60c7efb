"""From the ``[data]`` table to splits of token ids: located, divided, encoded, stored."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sublayer.config.data import DataConfig, DocumentRule, SentenceRule
from sublayer.config.texts import (
    GPT1,
    INTRINSIC,
    LETTERED_TOKENIZERS,
    PUBLISHED_SPLITS,
    TOKENIZERS,
    Sources,
    watched_texts,
)
from sublayer.counts import count
from sublayer.data.cache import content_key
from sublayer.data.corpora.named import find_sources
from sublayer.data.corpora.watched import read_watched
from sublayer.data.parallel.sources import PairText, read_pairs, sides_of
from sublayer.data.shards import VERSION, note_unfinished
from sublayer.data.split import Split
from sublayer.data.store import read_store, write_store
from sublayer.data.text.documents import Reading
from sublayer.data.text.splitting import SPLITS, SplitName
from sublayer.data.texts import Texts, find_texts, reading_of, whole_texts
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.data.tokenizers.named import (
    load_tokenizer,
    train_tokenizer,
    trainer_version,
    with_special_tokens,
)
from sublayer.data.training_text import TrainingText, describe_marks, note_losses, samples_of
from sublayer.errors import DataError
from sublayer.files.cache_folder import cache_folder, held_in_cache, lock_of, replacing
from sublayer.files.paths import expanded
from sublayer.system.memory import release_freed_memory
from sublayer.system.stages import note, stage


@dataclass(frozen=True)
class Data:
    """The splits of a run and the tokenizer that they share."""

    tokenizer: Tokenizer
    train: Split
    valid: Split | None
    """None where nothing is held out for it."""
    test: Split | None
    """None where nothing is held out for it."""
    checksums: dict[str, str]
    """By ``train``, ``valid`` and ``test`` what ``TokenStore.sha256`` is of, of those that there
    are; by ``tokenizer`` its fingerprint."""
    watched: Mapping[str, Split] = field(default_factory=dict)
    """Texts that are scored on the way and choose nothing, by the name that their scores have."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """By split, and by ``watch.NAME``, the key of all that its examples follow from: the texts,
    how they were divided and cut, and their ids."""

    def sizes(self) -> dict[str, dict[str, int]]:
        """Return by split its bytes, tokens, documents and what was left out, for a record."""
        return {split.name: split.sizes() for split in self.splits()}

    def splits(self) -> list[Split]:
        """Return the splits that there are, in order."""
        return [split for split in (self.train, self.valid, self.test) if split is not None]


def prepare(
    config: DataConfig,
    *,
    tokenizer: Tokenizer | None = None,
    cache: Path | None = None,
    check: Callable[[Texts], None] = lambda texts: None,
    trains: bool = True,
) -> Data:
    """Find, split, encode and store the text that a recipe names, or open what is stored.

    ``tokenizer`` replaces the recipe's (continuing from a run); one that is trained sees the
    training split alone. ``trains``: the words that its rules change are said. ``cache`` is the
    folder of stored data, by default ``cache_folder()``. ``check`` raises for texts that do not
    serve, before anything is made of them.

    Raises ConfigError where settings contradict each other, DataError where a text is missing,
    damaged, too short or not of the encoding that the tokenizer needs, or the disk is full.
    """
    folder = cache_folder(cache)
    kind = config.tokenizer if tokenizer is None else tokenizer.kind
    reading = reading_of(config)
    watched_documents = {}
    for name, text in watched_texts(config.watch).items():
        # First: what cannot be fetched is said before a long text is read.
        with stage(f"reading {text}, which is watched"):
            watched_documents[name] = read_watched(text, folder, reading)
    with stage(f"reading {_described(config)}"):
        texts = find_texts(config, folder, is_utf8=kind != "bytes")
        check(texts)
    if tokenizer is None:
        tokenizer = _tokenizer(config, texts, folder)
    else:
        tokenizer = _for_text(config, tokenizer)
    with stage("turning the text into tokens"):
        train = _split("train", texts, tokenizer, folder, trains=trains)
        valid, test = (
            _split(name, texts, tokenizer, folder) if texts.has(name) else None
            for name in SPLITS[1:]
        )
        watched = {}
        watched_digests = {}
        for name, documents in watched_documents.items():
            whole = whole_texts({name: documents}, "valid", config.sentences)
            shown = f"{name}, which is watched,"
            watched[name] = _split("valid", whole, tokenizer, folder, shown=shown)
            watched_digests[f"watch.{name}"] = _digest("valid", whole, watched[name])
    checksums: dict[str, str] = {"tokenizer": tokenizer.fingerprint}
    digests: dict[str, str] = {}
    for split_name, split in zip(SPLITS, (train, valid, test), strict=True):
        if split is not None:
            checksums[split_name] = split.store.sha256
            digests[split_name] = _digest(split_name, texts, split)
    digests |= watched_digests
    return Data(tokenizer, train, valid, test, checksums, watched, digests)


def _digest(name: SplitName, texts: Texts, split: Split) -> str:
    return content_key(texts.identity(name), split.store.crc32s)


def _described(config: DataConfig) -> str:
    if config.corpus == "python":
        return "the prose of this Python installation"
    if config.corpus is not None:
        return f"the corpus {config.corpus}"
    return "the text"


def prepare_tokenizer(config: DataConfig, *, cache: Path | None = None) -> Tokenizer:
    """Build or load the tokenizer of a recipe alone; training one reads the training split.

    A tokenizer that was trained on the same text before is read from the cache.

    Raises ConfigError and DataError as ``prepare`` does.
    """
    folder = cache_folder(cache)
    if config.tokenizer not in TOKENIZERS:
        return _of_file(config)
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
    """Encode a text to be scored: all of what ``path`` names, or one split of a named corpus.

    Of the corpus albert-intrinsic, whose files ``path`` names, all of it; beside any other corpus
    ``path`` is not read. Of a path that has a published split (lm1b's release), ``split`` of it.

    ``sentences``, ``documents`` and ``text_field`` are the fields of ``[data]``; ``shares`` is
    ``split`` there, for a corpus that has no published one: a model must be scored on what the
    shares of its training held out.

    Raises ConfigError if neither is given, DataError where it is missing, damaged, or shorter than
    two tokens.
    """
    folder = cache_folder(cache)
    shown = None
    if corpus is not None and corpus != INTRINSIC:
        own = None if corpus in PUBLISHED_SPLITS else shares
        config = DataConfig(
            corpus=corpus,
            split=own,
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


def _tokenizer(config: DataConfig, texts: Texts, cache: Path) -> Tokenizer:
    kind = config.tokenizer
    if kind not in TOKENIZERS:
        return _of_file(config)
    if kind == "bytes":
        return _for_text(config, train_tokenizer(kind, ()))
    text = texts.identity("train")
    # What the words of pairs were divided by decides what is trained, too.
    languages: list[Any] = []
    if config.is_parallel:
        sides = [side.content() for side in sides_of(config)]
        languages = ["as written", *sides]
    version = trainer_version(kind)
    asked: list[Any] = [["sentinels", config.sentinels]] if config.sentinels else []
    if config.merges is not None:
        asked.append(["merges", config.merges])
    letters = config.letter_rules()
    if kind in LETTERED_TOKENIZERS and set(letters.values()) != {None}:
        asked.append(["letters", letters, 1])
    if kind == GPT1:
        asked.append(["normalization", config.normalization or "published"])
    if config.special_tokens is not None:
        asked.append(["special_tokens", config.special_tokens])
    identity = [VERSION, kind, config.vocab_size, version, text, *languages, *asked]
    path = _tokenizer_path(cache, identity)
    if (known := _read_cached(path)) is not None:
        return known
    training = TrainingText(texts.ranges("train"), kind, texts.sentences)
    if training.identity:
        path = _tokenizer_path(cache, [*identity, *training.identity])
        if (known := _read_cached(path)) is not None:
            return known
    with held_in_cache(lock_of(path), "trains the same tokenizer"):
        if (known := _read_cached(path)) is not None:
            return known
        _train(config, training, path)
    # Read back, so that a fresh tokenizer and a cached one are the same to the last bit.
    return load_tokenizer(path)


def _train(config: DataConfig, training: TrainingText, path: Path) -> None:
    kind = config.tokenizer
    with stage(f"training a {kind} tokenizer on the training text"):
        trained = train_tokenizer(
            kind,
            training.texts(),
            vocab_size=config.vocab_size,
            **config.letter_rules(),
            merges=config.merges,
            sentinels=config.sentinels,
            normalization=config.normalization,
        )
    release_freed_memory()
    training.check_unchanged()
    with replacing(path) as file:
        file.write(_for_text(config, trained).serialize())


def _tokenizer_path(cache: Path, identity: list[Any]) -> Path:
    return cache / "tokenizers" / f"{content_key(*identity)}.json"


def _read_cached(path: Path) -> Tokenizer | None:
    if not path.is_file():
        return None
    try:
        return load_tokenizer(path)
    except DataError:
        # A damaged file of the cache is made again, as if it were not there.
        path.unlink(missing_ok=True)
        return None


def _of_file(config: DataConfig) -> Tokenizer:
    path = expanded(config.tokenizer)
    tokenizer = load_tokenizer(
        path,
        sentinels=config.sentinels,
        normalization=config.normalization,
        special_tokens=config.special_tokens or "file",
    )
    return _for_text(config, tokenizer)


def _for_text(config: DataConfig, vocabulary: Tokenizer) -> Tokenizer:
    """Read marks as asked, and wrap in the rules of two languages where the text is pairs."""
    if config.special_tokens is not None:
        vocabulary = with_special_tokens(vocabulary, config.special_tokens)
    if not config.is_parallel:
        return vocabulary
    if isinstance(vocabulary, BilingualTokenizer):
        vocabulary = vocabulary.vocabulary
    return BilingualTokenizer(vocabulary, *sides_of(config))


def _split(
    name: SplitName,
    texts: Texts,
    tokenizer: Tokenizer,
    cache: Path,
    *,
    shown: str | None = None,
    trains: bool = False,
) -> Split:
    """Open a split's tokens, stored before or now; errors call it ``shown``, or by its name."""
    key = content_key(VERSION, tokenizer.fingerprint, name, texts.identity(name))
    path = cache / "tokens" / key
    store = read_store(path)
    if store is None:
        if name == "train":
            note_unfinished(path)
        write_store(path, texts.ranges(name), tokenizer, texts.sentences)
        store = read_store(path)
        assert store is not None, f"a store just written is whole: {path}"
    names = tuple(source.name for source in texts.sources(name))
    if store.n_tokens < 2:
        called = shown or f"the {name} split of {' and '.join(names)}"
        raise DataError(
            f"{called} has {count(store.n_tokens, 'token')}; "
            "2 are the least that can be scored: give a longer text"
        )
    whose = shown or f"{' and '.join(names)}, {name} split"
    note_losses(whose, samples_of(texts.ranges(name), texts.sentences), tokenizer, trains=trains)
    weights: list[float] = []
    if name == "train":
        for source in texts.sources(name):
            if source.weight is not None:
                weights.append(source.weight)
    # The texts that were located here are read, and not searched for again.
    read_pairs = partial(_pairs, texts, name) if texts.sentences == "pair" else None
    return Split(
        name=name,
        store=store,
        tokenizer=tokenizer,
        sources=names,
        is_cut=texts.is_cut(name),
        weights=tuple(weights) or None,
        n_empty_documents=texts.n_empty(name),
        read_pairs=read_pairs,
    )


def _pairs(texts: Texts, name: SplitName) -> list[PairText]:
    return read_pairs(texts.ranges(name))
