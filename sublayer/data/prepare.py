"""From the ``[data]`` table to splits of token ids: found, divided, encoded, stored."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from sublayer.announce import Say, announced, say_nothing
from sublayer.cache import cache_folder
from sublayer.config.data import (
    INTRINSIC,
    PUBLISHED_SPLITS,
    TOKENIZERS,
    DataConfig,
    DocumentRule,
    SentenceRule,
    Sources,
)
from sublayer.config.texts import expanded
from sublayer.data.bilingual import BilingualTokenizer
from sublayer.data.cache import content_key, replacing
from sublayer.data.characters import character_start
from sublayer.data.corpus import find_sources
from sublayer.data.divide import SPLITS, SplitName
from sublayer.data.documents import Reading
from sublayer.data.pair_texts import sides_of
from sublayer.data.piece import Piece
from sublayer.data.sentences import TextUnit, sentences_of
from sublayer.data.split import Split
from sublayer.data.store import VERSION, read_store, write_store
from sublayer.data.subword import before_whitespace
from sublayer.data.texts import Texts, find_texts, whole_texts
from sublayer.data.tokenizer import load_tokenizer, train_tokenizer, trainer_version
from sublayer.data.vocabulary import Tokenizer, after_newline
from sublayer.errors import DataError

_CUTS = {"bpe": before_whitespace, "wordpiece": before_whitespace, "characters": character_start}


@dataclass(frozen=True)
class Data:
    """The three splits of a run and the tokenizer that they share.

    ``checksums`` are the SHA-256 of each split's raw bytes, and the tokenizer's fingerprint.
    """

    tokenizer: Tokenizer
    train: Split
    valid: Split
    test: Split
    checksums: dict[str, str]

    def sizes(self) -> dict[str, dict[str, int]]:
        """Give the bytes, tokens and documents of each split, for a record."""
        return {split.name: split.sizes() for split in (self.train, self.valid, self.test)}


def prepare(
    config: DataConfig, *, tokenizer: Tokenizer | None = None, cache: Path | None = None, say: Say = say_nothing
) -> Data:
    """Find, divide, encode and store the text that a recipe names; a second time, open what is stored.

    ``tokenizer`` replaces the recipe's (continuing from a run); one that is trained sees the training split alone.
    ``cache`` is the folder of what is kept, by default SUBLAYER_CACHE or ``~/.cache/sublayer``; ``say`` hears of what
    takes more than a second.

    Raises ConfigError where settings contradict each other, DataError where a text is missing, damaged, too short or
    not of the encoding that the tokenizer needs, or the disk is full.
    """
    folder = cache_folder(cache)
    kind = config.tokenizer if tokenizer is None else tokenizer.kind
    with announced(f"reading {_described(config)}", say):
        texts = find_texts(config, folder, is_utf8=kind != "bytes")
    tokenizer = _tokenizer(config, texts, folder, say) if tokenizer is None else _for_text(config, tokenizer)
    with announced("turning the text into tokens", say):
        splits = {name: _split(name, texts, tokenizer, folder) for name in SPLITS}
    if config.sentences == "none" and not config.is_parallel:
        splits["train"].check_context(config.context)
    checksums: dict[str, str] = {name: split.store.sha256 for name, split in splits.items()}
    return Data(tokenizer, **splits, checksums={**checksums, "tokenizer": tokenizer.fingerprint})


def _described(config: DataConfig) -> str:
    if config.corpus == "python":
        return "the prose of this Python installation"
    return f"the corpus {config.corpus}" if config.corpus is not None else "the text"


def prepare_tokenizer(config: DataConfig, *, cache: Path | None = None) -> Tokenizer:
    """Make or load the tokenizer of a recipe alone; one that is trained sees the training split alone.

    Raises ConfigError and DataError as ``prepare`` does.
    """
    folder = cache_folder(cache)
    if config.tokenizer not in TOKENIZERS:
        return _for_text(config, load_tokenizer(expanded(config.tokenizer)))
    return _tokenizer(config, find_texts(config, folder, is_utf8=config.tokenizer != "bytes"), folder)


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

    Of the corpus albert-intrinsic, whose files ``path`` names, all of it. ``sentences``, ``documents`` and
    ``text_field`` are the fields of ``[data]``; ``shares`` is ``split`` there, for a corpus that has no published one:
    a model must be scored on what the shares of its training held out.

    Raises ConfigError if neither is given, DataError where it is missing, damaged, or shorter than two tokens.
    """
    folder = cache_folder(cache)
    if corpus is not None and corpus != INTRINSIC:
        own = None if corpus in PUBLISHED_SPLITS else shares
        config = DataConfig(corpus=corpus, split=own, sentences=sentences, documents=documents, text_field=text_field)
        texts = find_texts(config, folder, is_utf8=tokenizer.kind != "bytes")
    else:
        sources = find_sources(path, corpus, folder, Reading(documents, text_field, is_clean=sentences != "none"))
        found = {each.name: each.documents or each.published[split] for each in sources}
        texts = whole_texts(found, split, sentences)
    return _split(split, texts, tokenizer, folder)


def _tokenizer(config: DataConfig, texts: Texts, cache: Path, say: Say = say_nothing) -> Tokenizer:
    kind = config.tokenizer
    if kind not in TOKENIZERS:
        return _for_text(config, load_tokenizer(expanded(kind)))
    if kind == "bytes":
        return _for_text(config, train_tokenizer(kind, ()))
    languages = ["as written", *(side.content() for side in sides_of(config))] if config.is_parallel else []
    key = content_key(VERSION, kind, config.vocab_size, trainer_version(kind), texts.identity("train"), *languages)
    path = cache / "tokenizers" / f"{key}.json"
    if path.is_file():
        try:
            return load_tokenizer(path)
        except DataError:
            # A damaged file of the cache is made again, as if it were not there.
            path.unlink(missing_ok=True)
    # Said at once: nobody hears a clock while a library trains.
    say(f"training a {kind} tokenizer on the training text")
    pieces = chain.from_iterable(texts.pieces("train"))
    if texts.sentences == "none":
        training = _training_texts(pieces, kind)
    else:
        training = _training_sentences(pieces, texts.sentences)
    trained = train_tokenizer(kind, training, vocab_size=config.vocab_size, keeps_text=config.is_parallel)
    with replacing(path) as file:
        file.write(_for_text(config, trained).serialize())
    # Read back, so that a fresh tokenizer and a cached one are the same to the last bit.
    return load_tokenizer(path)


def _for_text(config: DataConfig, vocabulary: Tokenizer) -> Tokenizer:
    """Put the rules of two languages around a vocabulary, where the text is pairs."""
    if not config.is_parallel:
        return vocabulary
    if isinstance(vocabulary, BilingualTokenizer):
        vocabulary = vocabulary.vocabulary
    return BilingualTokenizer(vocabulary, *sides_of(config))


def _training_sentences(pieces: Iterable[Piece], rule: TextUnit) -> Iterator[bytes]:
    for piece in pieces:
        for sentences in sentences_of(piece, rule):
            yield "".join(f"{sentence}\n" for sentence in sentences).encode()


def _training_texts(pieces: Iterable[Piece], kind: str) -> Iterator[bytes]:
    cut = _CUTS.get(kind, after_newline)
    for piece in pieces:
        for start, chunk in piece.chunks(cut):
            if kind != "bpe":
                try:
                    chunk.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise piece.not_utf8(start + error.start) from error
            yield chunk


def _split(name: SplitName, texts: Texts, tokenizer: Tokenizer, cache: Path) -> Split:
    path = cache / "tokens" / content_key(VERSION, tokenizer.fingerprint, name, texts.identity(name))
    store = read_store(path)
    if store is None:
        write_store(path, texts.pieces(name), tokenizer, texts.sentences)
        store = read_store(path)
        assert store is not None, f"a store just written is whole: {path}"
    sources = texts.sources(name)
    if store.n_tokens < 2:
        raise DataError(
            f"the {name} split of {' and '.join(source.name for source in sources)} has {store.n_tokens} token(s); "
            "2 are the least that can be scored: give a longer text"
        )
    weights = tuple(source.weight for source in sources if source.weight is not None) if name == "train" else ()
    return Split(name, store, tokenizer, tuple(source.name for source in sources), weights or None, texts.n_empty(name))
