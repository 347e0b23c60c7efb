"""Splits of a text: its bytes or documents in order, divided, replaced, weighted."""

import gzip
from itertools import pairwise

import numpy as np
import pytest

from sublayer.config.data import DataConfig
from sublayer.data.batches import Windows
from sublayer.data.prepare import prepare
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import ConfigError
from tests.data.corpora.releases import write_release
from tests.data.prepare.texts import TEXT, raw


@pytest.mark.parametrize("tokenizer", ["bytes", "characters", "bpe"])
def test_the_splits_of_a_file_are_its_bytes_in_order(file, cache, tokenizer):
    vocab_size = 300 if tokenizer == "bpe" else None
    data = prepare(
        DataConfig(path=str(file), tokenizer=tokenizer, vocab_size=vocab_size, context=64),
        cache=cache,
    )
    n = len(TEXT)
    assert raw(data.train) == TEXT[: n * 90 // 100]
    assert raw(data.valid) == TEXT[n * 90 // 100 : n * 95 // 100]
    assert raw(data.test) == TEXT[n * 95 // 100 :]
    assert data.sizes()["train"] == {
        "bytes": n * 90 // 100,
        "tokens": len(data.train.ids),
        "documents": 1,
    }
    for split in (data.train, data.valid, data.test):
        assert split.store.is_lossless
        assert data.tokenizer.token_bytes[split.ids].sum() == split.store.n_bytes
        assert data.tokenizer.token_characters[split.ids].sum() == split.store.n_bytes


def test_a_compressed_file_gives_the_same_splits(file, cache, tmp_path):
    (tmp_path / "text.gz").write_bytes(gzip.compress(TEXT))
    plain = prepare(DataConfig(path=str(file), context=64), cache=cache)
    packed = prepare(DataConfig(path=str(tmp_path / "text.gz"), context=64), cache=cache)
    assert packed.checksums == plain.checksums


@pytest.mark.parametrize("windows", ["random", "shuffled"])
def test_no_window_reaches_into_another_split(tmp_path, cache, windows):
    # Every byte of the text says which split it belongs to.
    (tmp_path / "text").write_bytes(b"t" * 900 + b"v" * 50 + b"e" * 50)
    data = prepare(DataConfig(path=str(tmp_path / "text"), context=13), cache=cache)
    cut = Windows(data.train, context=13, batch_sequences=50, seed=0, mode=windows)
    seen = [cut.batch(step) for step in range(20)]
    assert {int(value) for batch in seen for value in np.unique(batch.tokens)} == {ord("t")}
    assert {int(value) for batch in seen for value in np.unique(batch.targets)} == {ord("t")}


def test_documents_are_divided_whole(folder, cache):
    data = prepare(DataConfig(path=str(folder), context=64), cache=cache)
    assert {name: sizes["documents"] for name, sizes in data.sizes().items()} == {
        "train": 36,
        "valid": 2,
        "test": 2,
    }
    found = []
    for split in (data.train, data.valid, data.test):
        bounds = [*split.document_starts.tolist(), len(split.ids)]
        found += [raw(split)[start:stop] for start, stop in pairwise(bounds)]
    assert sorted(found) == sorted(path.read_bytes() for path in folder.iterdir())


def test_other_files_replace_the_split(file, folder, cache, tmp_path):
    (tmp_path / "valid.txt").write_bytes(b"validation")
    n = len(TEXT)
    one = prepare(
        DataConfig(path=str(file), valid_path=str(tmp_path / "valid.txt"), context=64), cache=cache
    )
    assert (raw(one.train), raw(one.valid), raw(one.test)) == (
        TEXT[: n * 95 // 100],
        b"validation",
        TEXT[n * 95 // 100 :],
    )
    both = prepare(
        DataConfig(
            path=str(file),
            valid_path=str(tmp_path / "valid.txt"),
            test_path=str(folder / "0*.txt"),
            context=64,
        ),
        cache=cache,
    )
    assert (raw(both.train), raw(both.valid)) == (TEXT, b"validation")
    assert len(both.test.document_starts) == 10


def test_a_list_is_joined_and_each_entry_divided(file, folder, cache):
    data = prepare(DataConfig(path=(str(file), str(folder)), context=64), cache=cache)
    alone = prepare(DataConfig(path=str(file), context=64), cache=cache)
    assert raw(data.test).startswith(raw(alone.test))
    assert data.test.sources == (str(file), str(folder))
    assert data.test.store.source_starts.tolist() == [0, len(alone.test.ids)]
    assert {name: sizes["documents"] for name, sizes in data.sizes().items()} == {
        "train": 37,
        "valid": 3,
        "test": 3,
    }
    assert data.train.weights is None


def test_weights_sample_training_and_leave_evaluation_alone(file, tmp_path, cache):
    (tmp_path / "other.txt").write_bytes(bytes(reversed(TEXT)))
    config = DataConfig(path={str(file): 1.0, str(tmp_path / "other.txt"): 3.0}, context=64)
    data = prepare(config, cache=cache)
    assert data.train.weights == (1.0, 3.0)
    assert data.valid.weights is None
    n_first = data.train.store.source_starts[1]
    windows = Windows(data.train, context=64, batch_sequences=50, seed=0)
    starts = np.concatenate([windows.starts(step) for step in range(80)])
    assert abs(np.count_nonzero(starts >= n_first) - 3000) < 5 * 27
    equal = prepare(DataConfig(path=tuple(config.path), context=64), cache=cache)
    assert equal.checksums == data.checksums


def test_a_published_split_is_kept(tmp_path, cache, file):
    release = write_release(tmp_path / "release")
    data = prepare(DataConfig(path=str(release), context=8), cache=cache)
    assert raw(data.train) == b"The first sentence .\nThe second sentence .\n"
    assert raw(data.test) == b"A test sentence .\n"
    mixed = prepare(
        DataConfig(path=(str(release), str(file)), split="80/10/10", context=8), cache=cache
    )
    assert raw(mixed.test) == b"A test sentence .\n" + TEXT[len(TEXT) * 90 // 100 :]
    with pytest.raises(
        ConfigError, match=r"data.split = 80/10/10 has no effect: .* has a published split"
    ):
        prepare(DataConfig(path=str(release), split="80/10/10", context=8), cache=cache)


@pytest.mark.slow
def test_the_built_in_corpus_needs_nothing(prose_cache):
    data = prepare(DataConfig(corpus="python"), cache=prose_cache)
    sizes = data.sizes()
    total = sum(size["bytes"] for size in sizes.values())
    assert 1_500_000 < total < 4_000_000
    assert sizes["valid"]["bytes"] == pytest.approx(0.05 * total, rel=0.02)
    assert sizes["test"]["bytes"] == pytest.approx(0.05 * total, rel=0.02)
    assert data.train.sources == ("python",)


def test_real_books_are_divided_whole(real_data, cache):
    data = prepare(DataConfig(path=str(real_data / "books"), tokenizer="characters"), cache=cache)
    sizes = data.sizes()
    assert sum(size["documents"] for size in sizes.values()) == 7
    assert sum(size["bytes"] for size in sizes.values()) == sum(
        path.stat().st_size for path in (real_data / "books").iterdir()
    )
    assert (
        load_tokenizer(next((cache / "tokenizers").iterdir())).fingerprint
        == data.tokenizer.fingerprint
    )
