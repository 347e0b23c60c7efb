"""Where tokens stand in the text that they were made of."""

import json
import string
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tasks.offsets import encode_with_offsets
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer

_TEXT = (
    "The Panthers' defense gave up just 308 points, ranking sixth. Tesla's machine — “to end” — "
    "cost 1,000,000 (about 6½ km²) in the 1980s; naïve cafés in the U.S. are fine.\n"
) * 20


def _library_unigram(model: Tokenizer) -> SubwordTokenizer:
    # T5's file of the tokenizers library, in short.
    scores = [(name, score) for name, score in model.scores()]
    library = tokenizers.Tokenizer(models.Unigram(scores, unk_id=model.unk_id))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    return SubwordTokenizer(library)


_SIZES = {
    "characters": None,
    "bpe": 400,
    "wordpiece": 200,
    "unigram": 150,
    "word-bpe": 200,
    "moses-bpe": 200,
}
_NAMES = ("bytes", *_SIZES, "t5", "library unigram")


@cache
def _tokenizer(name: str) -> Tokenizer:
    if name == "bytes":
        return ByteTokenizer()
    if name == "t5":
        return train_tokenizer("unigram", [_TEXT.encode()], vocab_size=150, sentinels=4)
    if name == "library unigram":
        return _library_unigram(_tokenizer("t5"))
    return train_tokenizer(name, [_TEXT.encode()], vocab_size=_SIZES[name])


@pytest.mark.parametrize("name", _NAMES)
def test_a_word_is_found_in_its_tokens(name):
    tokenizer = _tokenizer(name)
    text = "In the 1980s Tesla's café, naïve Panthers scored\n\n  points."
    placed = encode_with_offsets(tokenizer, text)
    assert np.array_equal(placed.ids, tokenizer.encode(text.encode()))
    for word in ("Tesla", "café", "naïve", "Panthers", "points"):
        start = text.index(word)
        tokens = placed.covering(start, start + len(word))
        assert tokens is not None
        assert word in text[placed.slice(*tokens, text)]
        # No token of another word is taken for it.
        assert text[placed.slice(*tokens, text)].strip("'s,.") in (word, word.strip("s"))


def test_places_are_exact_where_every_byte_is_kept():
    text = "aé東b"
    placed = encode_with_offsets(ByteTokenizer(), text)
    assert placed.starts.tolist() == [0, 1, 1, 2, 2, 2, 3]
    assert placed.ends.tolist() == [1, 2, 2, 3, 3, 3, 4]
    placed = encode_with_offsets(_tokenizer("bpe"), _TEXT)
    joined = "".join(
        _TEXT[start:end] for start, end in zip(placed.starts, placed.ends, strict=True)
    )
    assert len(joined) >= len(_TEXT) and set(joined) == set(_TEXT)


def test_characters_have_a_place_each():
    placed = encode_with_offsets(CharacterTokenizer("ab"), "abxa")
    assert placed.ids.tolist() == [1, 2, 0, 1]
    assert placed.starts.tolist() == [0, 1, 2, 3]
    assert placed.ends.tolist() == [1, 2, 3, 4]


def test_what_the_vocabulary_lacks_stands_for_what_lies_between(real_data):
    tokenizer = load_tokenizer(real_data / "vocab" / "albert" / "spiece.model")
    text = "Hello “É½” 1,000 東京, the  End"
    placed = encode_with_offsets(tokenizer, text)
    places = {
        tokenizer.names[id_]: text[start:end].strip()
        for id_, start, end in zip(placed.ids, placed.starts, placed.ends, strict=True)
        if id_ != tokenizer.unk_id
    }
    assert places["▁hello"] == "Hello"
    assert places["e"] == "É"
    assert places["1"] == "½" and places["2"] == "½"
    assert places["▁1,000"] == "1,000"
    assert places["▁the"] == "the"
    assert places["▁end"] == "End"
    unknown = placed.ids == tokenizer.unk_id
    covered = {text[a:b].strip() for a, b in zip(placed.starts, placed.ends, strict=True)}
    assert unknown.any() and "東京" in covered


def _texts() -> st.SearchStrategy[str]:
    letters = ("½", "ﬁ", "İ", "ß", "Σ", "ς", "a\u0301", "\u200b", "\u00ad", "東京", "😀", "▁")
    not_letters = ("\ud800", "\uffff", "\ufffd", "“", "’", "…", "''", "3,", "\u2028", "\n", " ")
    odd = st.sampled_from((*letters, *not_letters, "[SEP]", "<unk>", "##"))
    known = st.sampled_from(_TEXT.split(" "))
    return st.lists(st.one_of(odd, known, st.characters()), max_size=12).map("".join)


@pytest.mark.parametrize("name", _NAMES)
@given(text=_texts())
def test_places_are_in_order_and_in_the_text(name, text):
    tokenizer = _tokenizer(name)
    placed = encode_with_offsets(tokenizer, text)
    assert np.array_equal(placed.ids, tokenizer.encode(text.encode("utf-8", "replace")))
    assert placed.ids.shape == placed.starts.shape == placed.ends.shape
    assert (np.diff(placed.starts) >= 0).all() and (np.diff(placed.ends) >= 0).all()
    assert (placed.starts <= placed.ends).all()
    assert (placed.starts >= 0).all() and (placed.ends <= len(text)).all()


def _gold_spans(real_data) -> Iterator[tuple[str, int, str]]:
    path = real_data / "squad" / "squad_v1.1_dev_240_paragraphs.json"
    for article in json.loads(path.read_text("utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                for answer in question["answers"]:
                    yield paragraph["context"], answer["answer_start"], answer["text"]


# How many of the 1,190 end inside a token: of the first two "7,000,000 square kilometres (2,70",
# which its annotator cut short; of byte pairs those whose last token has marks behind it.
@pytest.mark.parametrize(
    ("name", "n_inside"),
    [
        ("bert/vocab.txt", 1),
        pytest.param("albert/spiece.model", 1, marks=pytest.mark.slow),
        ("bytes", 0),
        ("characters", 0),
        ("bpe", 12),
    ],
)
def test_every_answer_of_the_shared_piece_comes_back_from_its_tokens(real_data, name, n_inside):
    spans = list(_gold_spans(real_data))
    if "/" in name:
        tokenizer = load_tokenizer(real_data / "vocab" / name)
    else:
        contexts = dict.fromkeys(context.encode() for context, _, _ in spans)
        tokenizer = train_tokenizer(name, contexts, vocab_size=3000 if name == "bpe" else None)
    placed = {}
    others = []
    for context, start, answer in spans:
        if context not in placed:
            placed[context] = encode_with_offsets(tokenizer, context)
        tokens = placed[context].covering(start, start + len(answer))
        assert tokens is not None
        found = placed[context].slice(*tokens, context)
        assert found.start <= start and found.stop >= start + len(answer.rstrip())
        if context[found] != answer:
            others.append((answer, context[found]))
    assert len(spans) == 1190 and len(others) == n_inside
    marks = string.punctuation + string.digits
    assert all(answer.strip(marks) == found.strip(marks) for answer, found in others)
