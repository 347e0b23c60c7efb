"""Tokenizers of a recipe: trained on the training split, or read from a file."""

import numpy as np
import pytest

from sublayer.config.data import DataConfig
from sublayer.data.prepare import prepare, prepare_tokenizer
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import DataError
from sublayer.files.cache_folder import lock_of
from sublayer.system.stage_displays import HeardStages
from sublayer.system.stages import shown_by
from tests.data.prepare.texts import TEXT, raw
from tests.waiting import waits_until


@pytest.mark.parametrize("tokenizer", ["unigram", "wordpiece", "moses-bpe"])
def test_vocabularies_for_masks_see_the_training_split_and_encode_every_split(
    file, cache, tokenizer
):
    config = DataConfig(path=str(file), tokenizer=tokenizer, vocab_size=120, context=64)
    data = prepare(config, cache=cache)
    n = len(TEXT)
    trained = train_tokenizer(tokenizer, [TEXT[: n * 90 // 100]], vocab_size=120)
    assert data.tokenizer.fingerprint == trained.fingerprint
    assert data.train.ids.tolist() == trained.encode(TEXT[: n * 90 // 100]).tolist()
    assert data.valid.ids.tolist() == trained.encode(TEXT[n * 90 // 100 : n * 95 // 100]).tolist()
    assert prepare(config, cache=cache).checksums == data.checksums
    bad = file.with_name("bad.txt")
    bad.write_bytes(b"a\n\xff" + TEXT)
    with pytest.raises(DataError, match=r"bad.txt, line 2: byte 0xff is not UTF-8"):
        prepare(DataConfig(path=str(bad), tokenizer=tokenizer, vocab_size=120), cache=cache)


def test_the_tokenizer_is_trained_on_the_training_split_alone(tmp_path, cache):
    (tmp_path / "text").write_bytes(b"ab " * 600 + b"xy " * 33)
    characters = prepare(
        DataConfig(path=str(tmp_path / "text"), tokenizer="characters", context=64), cache=cache
    )
    assert characters.tokenizer.vocab_size == 4
    assert characters.train.store.is_lossless
    assert not characters.test.store.is_lossless
    config = DataConfig(path=str(tmp_path / "text"), tokenizer="bpe", vocab_size=300, context=64)
    bpe = prepare(config, cache=cache)
    assert bpe.tokenizer.encode(b" ab").tolist() != []
    assert len(bpe.tokenizer.encode(b" ab")) == 1
    assert len(bpe.tokenizer.encode(b" xy")) == 3
    assert prepare_tokenizer(config, cache=cache).fingerprint == bpe.tokenizer.fingerprint


def test_a_tokenizer_file_is_used_as_it_is(file, cache, tmp_path):
    tokenizer = train_tokenizer("bpe", [b"long enough " * 20], vocab_size=270)
    tokenizer.save(tmp_path / "tokenizer.json")
    config = DataConfig(path=str(file), tokenizer=str(tmp_path / "tokenizer.json"), context=64)
    data = prepare(config, cache=cache)
    assert data.checksums["tokenizer"] == data.tokenizer.fingerprint == tokenizer.fingerprint
    assert prepare_tokenizer(config, cache=cache).fingerprint == tokenizer.fingerprint
    given = prepare(DataConfig(path=str(file), context=64), tokenizer=tokenizer, cache=cache)
    assert given.checksums == data.checksums


def test_the_documents_of_bpe_end(folder, cache):
    data = prepare(
        DataConfig(path=str(folder), tokenizer="bpe", vocab_size=270, context=64), cache=cache
    )
    ends = np.flatnonzero(data.train.ids == data.tokenizer.end_id)
    assert (ends + 1).tolist() == data.train.document_starts[1:].tolist()


def test_a_text_cut_inside_a_character_does_for_bytes_and_bpe(tmp_path, cache):
    text = "naïve ".encode() * 500 + b"\xc3"
    (tmp_path / "text").write_bytes(text)
    for tokenizer in ("bytes", "bpe"):
        config = DataConfig(path=str(tmp_path / "text"), tokenizer=tokenizer, context=64)
        data = prepare(config, cache=cache)
        assert raw(data.train) + raw(data.valid) + raw(data.test) == text


@pytest.mark.slow
def test_real_text_comes_back_from_every_tokenizer(real_data, cache):
    path = real_data / "enwik8" / "enwik8_first_4MB"
    text = path.read_bytes()
    for tokenizer in ("bytes", "bpe"):
        data = prepare(DataConfig(path=str(path), tokenizer=tokenizer), cache=cache)
        assert raw(data.train) + raw(data.valid) + raw(data.test) == text
        n_test = len(text) - len(text) * 95 // 100
        assert n_test <= data.test.store.n_bytes <= n_test + 3


@pytest.mark.parametrize("tokenizer", ["moses-bpe", "word-bpe"])
def test_merges_are_counted_instead_of_ids(file, cache, tokenizer):
    def trained(**fields):
        config = DataConfig(path=str(file), tokenizer=tokenizer, context=64, **fields)
        return prepare_tokenizer(config, cache=cache)

    by_merges = trained(merges=30)
    assert len(by_merges.content()["merges"]) == 30
    assert trained(vocab_size=by_merges.vocab_size).fingerprint == by_merges.fingerprint
    assert trained(merges=31).fingerprint != by_merges.fingerprint


def test_a_tokenizer_of_a_text_that_changed_is_not_kept(file, cache):
    config = DataConfig(path=str(file), tokenizer="bpe", vocab_size=300, context=64)

    def change(text):
        if text.startswith("training a bpe tokenizer"):
            file.write_bytes(b"another text, and another text\n" * 99)

    with shown_by(HeardStages(change, change)), pytest.raises(DataError, match="changed while it"):
        prepare_tokenizer(config, cache=cache)
    assert not list(cache.rglob("*.json"))


def test_of_several_processes_one_trains_a_tokenizer_and_the_others_wait(file, cache):
    config = DataConfig(path=str(file), tokenizer="bpe", vocab_size=300, context=64)
    tokenizer = prepare_tokenizer(config, cache=cache)
    [path] = cache.rglob("*.json")
    saved = path.read_bytes()
    path.unlink()
    said = []
    with shown_by(HeardStages(said.append, said.append)):
        again = waits_until(
            lock_of(path),
            "waiting for another process, which trains the same tokenizer",
            lambda: prepare_tokenizer(config, cache=cache),
            lambda: path.write_bytes(saved),
        )
    assert again.fingerprint == tokenizer.fingerprint
    assert not said, "nothing was trained"
