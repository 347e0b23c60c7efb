"""From the ``[data]`` table to splits of token ids: found, divided, encoded, stored."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from sublayer.config.data import DataConfig
from sublayer.data.cache import cache_folder, content_key
from sublayer.data.characters import ByteTokenizer
from sublayer.data.corpus import Source, find_sources
from sublayer.data.divide import SPLITS, Piece, SplitName, divide
from sublayer.data.split import Split
from sublayer.data.store import VERSION, read_store, write_store
from sublayer.data.vocabulary import Tokenizer


@dataclass(frozen=True)
class Data:
    """The three splits of a run and the tokenizer that they share.

    ``checksums`` are the SHA-256 of each split's raw bytes and the tokenizer's fingerprint.
    """

    tokenizer: Tokenizer
    train: Split
    valid: Split
    test: Split
    checksums: dict[str, str]

    def sizes(self) -> dict[str, dict[str, int]]:
        """Give the bytes, tokens and documents of each split, for a record."""
        return {split.name: split.sizes() for split in (self.train, self.valid, self.test)}


def prepare(config: DataConfig, *, tokenizer: Tokenizer | None = None, cache: Path | None = None) -> Data:
    """Find, divide, encode and store the text that a recipe names."""
    folder = cache_folder(cache)
    sources = find_sources(config.path, config.corpus, folder)
    tokenizer = tokenizer or ByteTokenizer()
    shares = dict(zip(SPLITS, (Fraction(9, 10), Fraction(1, 20), Fraction(1, 20)), strict=True))
    is_utf8 = tokenizer.kind != "bytes"

    def build(name: SplitName) -> Split:
        key = content_key(
            VERSION, tokenizer.fingerprint, name, [[doc.digest() for doc in source.documents] for source in sources]
        )
        path = folder / "tokens" / key
        store = read_store(path)
        if store is None:
            write_store(path, [_pieces(source, name) for source in sources], tokenizer)
            store = read_store(path)
            assert store is not None, f"a store just written is whole: {path}"
        return Split(name, store, tokenizer, tuple(source.name for source in sources))

    def _pieces(source: Source, name: SplitName) -> tuple[Piece, ...]:
        return divide(source.documents, shares, name=source.name, is_utf8=is_utf8)[name]

    splits = {name: build(name) for name in SPLITS}
    checksums: dict[str, str] = {name: split.store.sha256 for name, split in splits.items()}
    return Data(tokenizer, **splits, checksums={**checksums, "tokenizer": tokenizer.fingerprint})
