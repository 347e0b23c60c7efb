"""Texts to be scored alone, without the splits of a training."""

import pytest

from sublayer.config.data import DataConfig
from sublayer.data.prepare import prepare, prepare_text
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import ConfigError, DataError
from tests.data.corpora.releases import write_release
from tests.data.prepare.texts import TEXT, raw, sentences_of_split


def test_a_text_to_be_scored_is_taken_whole(file, folder, cache, tmp_path):
    tokenizer = train_tokenizer("bytes", ())
    assert raw(prepare_text(tokenizer, path=str(file), cache=cache)) == TEXT
    several = prepare_text(tokenizer, path=str(folder), cache=cache)
    assert len(several.document_starts) == 40
    assert several.name == "test"
    release = write_release(tmp_path / "release")
    assert raw(prepare_text(tokenizer, path=str(release), cache=cache)) == b"A test sentence .\n"


@pytest.mark.slow
def test_a_corpus_is_scored_on_one_of_its_splits(prose_cache):
    tokenizer = train_tokenizer("bytes", ())
    data = prepare(DataConfig(corpus="python"), cache=prose_cache)
    for split in ("valid", "test"):
        found = prepare_text(tokenizer, corpus="python", split=split, cache=prose_cache)
        assert found.store.sha256 == data.checksums[split]


def test_a_text_of_one_token_cannot_be_scored(tmp_path, cache):
    (tmp_path / "text").write_bytes(b"a")
    with pytest.raises(DataError, match=r"text has 1 token; 2 are the least that can be scored"):
        prepare_text(train_tokenizer("bytes", ()), path=str(tmp_path / "text"), cache=cache)
    with pytest.raises(ConfigError, match="there is no text"):
        prepare_text(train_tokenizer("bytes", ()), cache=cache)


def test_a_text_to_be_scored_is_cut_into_sentences(tmp_path, cache):
    (tmp_path / "a.jsonl").write_text('{"body": "One. Two."}\n{"body": "Three."}\n')
    split = prepare_text(
        train_tokenizer("bytes", ()),
        path=str(tmp_path / "a.jsonl"),
        sentences="prose",
        documents="json",
        text_field="body",
        cache=cache,
    )
    assert sentences_of_split(split) == ["One.", "Two.", "Three."]
    assert split.document_starts.tolist() == [0, 8]
