"""Ids behind a vocabulary: no text has them, and no text they have."""

import json

import numpy as np
import pytest

from sublayer.data.tasks.marks import TRAVERSAL_NAMES
from sublayer.data.tokenizers.extended import ExtendedTokenizer, with_names
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.errors import DataError

TEXT = "a naïve text with an émigré, _start_ and _classify_\n".encode() * 5


@pytest.fixture(params=["bytes", "characters", "bpe", "unigram", "wordpiece", "gpt1-bpe"])
def vocabulary(request):
    size = None if request.param in ("bytes", "characters") else 60
    return train_tokenizer(
        request.param, [TEXT], vocab_size=300 if request.param == "bpe" else size
    )


def test_names_have_the_ids_behind_the_last(vocabulary):
    extended = with_names(vocabulary, TRAVERSAL_NAMES)
    first = vocabulary.vocab_size
    assert extended.vocab_size == first + 3
    assert extended.added_ids == dict(zip(TRAVERSAL_NAMES, range(first, first + 3), strict=True))
    assert extended.kind == vocabulary.kind
    for name in ("unk_id", "pad_id", "cls_id", "sep_id", "mask_id", "end_id", "is_lossless"):
        assert getattr(extended, name) == getattr(vocabulary, name)
    assert extended.special_ids == (*vocabulary.special_ids, *range(first, first + 3))
    assert len(extended.token_bytes) == len(extended.token_characters) == first + 3
    assert not extended.token_bytes[first:].any()


def test_a_text_never_has_their_ids_and_they_are_decoded_as_nothing(vocabulary):
    extended = with_names(vocabulary, TRAVERSAL_NAMES)
    ids = extended.encode(TEXT)
    assert ids.tolist() == vocabulary.encode(TEXT).tolist()
    assert ids.max() < vocabulary.vocab_size
    many = extended.encode_many([TEXT, b"", b"a text"])
    assert [each.tolist() for each in many] == [
        vocabulary.encode(each).tolist() for each in (TEXT, b"", b"a text")
    ]
    start, delimiter, end = extended.added_ids.values()
    marked = np.array([start, *ids[:4], delimiter, *ids[4:], end])
    assert extended.decode(marked) == vocabulary.decode(ids)
    assert extended.cut(TEXT, 30) == vocabulary.cut(TEXT, 30)


def test_it_is_saved_and_loaded_with_its_names(vocabulary, tmp_path):
    extended = with_names(vocabulary, TRAVERSAL_NAMES)
    extended.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert isinstance(loaded, ExtendedTokenizer)
    assert loaded.added_ids == extended.added_ids
    assert loaded.fingerprint == extended.fingerprint != vocabulary.fingerprint
    assert loaded.encode(TEXT).tolist() == extended.encode(TEXT).tolist()
    assert loaded.fingerprint != with_names(vocabulary, ("_other_",)).fingerprint


def test_names_that_are_there_are_not_added_again(vocabulary):
    extended = with_names(vocabulary, TRAVERSAL_NAMES[:2])
    assert with_names(extended, TRAVERSAL_NAMES[:2]) is extended
    both = with_names(extended, TRAVERSAL_NAMES)
    assert both.added_ids == with_names(vocabulary, TRAVERSAL_NAMES).added_ids
    assert both.vocab_size == vocabulary.vocab_size + 3
    marked = np.array([*both.added_ids.values(), *both.encode(b"a text")])
    assert both.decode(marked) == vocabulary.decode(vocabulary.encode(b"a text"))


def test_added_ids_begin_words():
    vocabulary = train_tokenizer("wordpiece", [TEXT], vocab_size=60)
    extended = with_names(vocabulary, TRAVERSAL_NAMES)
    assert extended.has_words
    ids = np.array([*vocabulary.encode(TEXT)[:6], *extended.added_ids.values()])
    starts = extended.starts_word(ids)
    assert starts.tolist() == [*vocabulary.starts_word(ids[:6]).tolist(), True, True, True]


@pytest.mark.parametrize(
    "damage",
    [
        {"names": []},
        {"names": ["a", "a"]},
        {"names": ["a", 3]},
        {"names": None},
        {"vocabulary": {}},
        {"vocabulary": None},
    ],
)
def test_a_damaged_file_is_refused_in_a_line(tmp_path, damage):
    extended = with_names(train_tokenizer("characters", [TEXT]), TRAVERSAL_NAMES)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**extended.content(), **damage}))
    with pytest.raises(DataError) as caught:
        load_tokenizer(path)
    assert "tokenizer.json" in str(caught.value) and "\n" not in str(caught.value)
