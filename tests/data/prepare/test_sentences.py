"""Texts that are cut into sentences, and books without what stands around them."""

import gzip
import hashlib
import json
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublayer.config.data import DataConfig
from sublayer.data.prepare import prepare, prepare_tokenizer
from tests.data.prepare.texts import book, raw, sentences_of_split


@pytest.mark.parametrize("tokenizer", ["bytes", "characters", "bpe"])
@pytest.mark.parametrize("suffix", ["txt", "txt.gz"])
def test_one_book_is_divided_between_paragraphs_of_its_body(tmp_path, cache, tokenizer, suffix):
    path = tmp_path / f"book.{suffix}"
    path.write_bytes(gzip.compress(book(1)) if suffix.endswith("gz") else book(1))
    vocab_size = 300 if tokenizer == "bpe" else None
    config = DataConfig(
        path=str(path), sentences="prose", tokenizer=tokenizer, vocab_size=vocab_size, context=16
    )
    data = prepare(config, cache=cache)
    found = [sentences_of_split(split) for split in (data.train, data.valid, data.test)]
    assert [len(each) for each in found] == [54 * 3, 3 * 3, 3 * 3]
    assert found[0][:3] == ["Sentence 0 of 1 came.", "It was short!", "“Was it?” he asked."]
    assert found[2][-3] == "Sentence 59 of 1 came."
    assert data.sizes()["test"]["sentences"] == 9
    assert data.test.store.n_bytes == sum(len(each.encode()) for each in found[2])
    assert data.test.store.is_lossless or tokenizer == "characters"
    # The cut splits' raw bytes are the body, in order.
    text = book(1)
    body = text[text.index(b"Sentence 0") : text.index(b"*** END")]
    for split in (data.train, data.valid, data.test):
        length = next(
            n
            for n in range(len(body) + 1)
            if hashlib.sha256(body[:n]).hexdigest() == split.store.sha256
        )
        body = body[length:]
    assert body == b""


def test_the_tokenizer_is_trained_on_cleaned_sentences(tmp_path, cache):
    path = tmp_path / "book.txt"
    path.write_bytes(book(1))
    config = DataConfig(path=str(path), sentences="prose", tokenizer="characters", context=16)
    tokenizer = prepare_tokenizer(config, cache=cache)
    cleaned = sentences_of_split(prepare(config, cache=cache).train)
    assert set(tokenizer.content()["characters"]) == {"\n", *"".join(cleaned)}
    plain = prepare_tokenizer(DataConfig(path=str(path), tokenizer="characters"), cache=cache)
    assert {"\ufeff", "*", "L"} & set(plain.content()["characters"])
    assert not {"\ufeff", "*", "L"} & set(tokenizer.content()["characters"])


def test_documents_of_json_are_divided_whole(tmp_path, cache):
    lines = [json.dumps({"body": f"Document {number // 2}. It is short."}) for number in range(80)]
    lines[3:3] = ['{"body": " "}', '{"body": ""}']
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    config = DataConfig(
        path=str(tmp_path / "a.jsonl.gz"),
        documents="json",
        text_field="body",
        sentences="prose",
        context=16,
    )
    data = prepare(config, cache=cache)
    splits = (data.train, data.valid, data.test)
    found = [set(sentences_of_split(split)) - {"It is short."} for split in splits]
    assert [len(each) for each in found] == [36, 2, 2]
    assert len(set.union(*found)) == 40
    for split in splits:
        assert set(split.document_starts.tolist()) < set(split.sentence_starts.tolist())
    assert data.sizes()["train"]["documents"] == 72
    assert data.sizes()["train"]["empty_documents"] == 2
    assert "empty_documents" not in data.sizes()["test"]
    plain = prepare(config.model_copy(update={"sentences": "none"}), cache=cache)
    assert plain.train.sentence_starts is None
    assert plain.checksums == data.checksums


@settings(max_examples=40)
@given(
    st.lists(
        st.text("abC. \n", max_size=20).map("One {}".format), min_size=3, max_size=30, unique=True
    )
)
def test_no_document_and_no_character_is_lost_or_in_two_splits(documents):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
        config = DataConfig(
            path=str(path), documents="json", sentences="prose", split="34/33/33", context=2
        )
        data = prepare(config, cache=Path(folder))
        found = []
        for split in (data.train, data.valid, data.test):
            bounds = [*split.document_starts.tolist(), len(split.ids)]
            found += [
                "".join(raw(split)[start:stop].decode().split()) for start, stop in pairwise(bounds)
            ]
        assert sorted(found) == sorted("".join(text.split()) for text in documents)


@pytest.mark.slow
def test_real_books_are_cut_into_sentences(real_data, cache):
    config = DataConfig(
        path=str(real_data / "books"), sentences="prose", tokenizer="bpe", vocab_size=2000
    )
    data = prepare(config, cache=cache)
    sizes = data.sizes()
    assert sum(size["documents"] for size in sizes.values()) == 7
    assert 40_000 < sum(size["sentences"] for size in sizes.values()) < 46_000
    for split in (data.train, data.valid, data.test):
        assert split.store.is_lossless
        assert data.tokenizer.token_bytes[split.ids].sum() == split.store.n_bytes
        assert not any("\n" in sentence for sentence in sentences_of_split(split))
