"""Sentinels: ids of gaps behind all others, counted down, never read from a text by themselves."""

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.config.data import DataConfig
from sublayer.config.layering.layers import load_recipe, vary
from sublayer.data.prepare import prepare, prepare_tokenizer
from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.data.tokenizers.language_rules import LanguageRules
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.data.tokenizers.normalization import AS_WRITTEN
from sublayer.data.tokenizers.sentinels import find_sentinels
from sublayer.errors import ConfigError, DataError
from tests.sentinels import encode_with_sentinels

PROSE = (
    "It is a truth universally acknowledged, in 1813, that a single man's fortune isn't his.\n"
    "The Cat sat on the Mat (naïve, or £1,000); <extra_id_7> is text.\n"
) * 20
TRAINED = train_tokenizer("unigram", [PROSE.encode()], vocab_size=120, sentinels=9)
ODD = st.text(st.sampled_from("ab TM19,.(\n\t<>/_'£ïÉé\u00a0½漢"), max_size=60)
NAMES = st.sampled_from(["<extra_id_0>", "<extra_id_8>", "<extra_id_9>", "</s>", "<pad>", "<unk>"])


def test_ids_have_t5s_order() -> None:
    names = TRAINED.names
    assert names[:3] == ["<pad>", "</s>", "<unk>"]
    last = TRAINED.vocab_size - 1
    assert names[last] == "<extra_id_0>"
    assert [names[id_] for id_ in TRAINED.sentinel_ids] == [f"<extra_id_{k}>" for k in range(9)]
    assert TRAINED.sentinel_ids == tuple(range(last, last - 9, -1))
    assert (TRAINED.pad_id, TRAINED.sep_id, TRAINED.unk_id) == (0, 1, 2)
    assert (TRAINED.cls_id, TRAINED.mask_id, TRAINED.end_id) == (None, None, None)
    assert TRAINED.special_ids == (0, 1, 2, *range(last - 8, last + 1))
    assert TRAINED.vocab_size <= 120
    assert TRAINED.token_bytes[list(TRAINED.special_ids)].tolist() == [0] * 12
    assert len(TRAINED.token_bytes) == len(TRAINED.token_characters) == TRAINED.vocab_size
    assert TRAINED.starts_word(np.array(TRAINED.special_ids)).all()


def test_the_vocabulary_has_as_many_ids_as_asked_sentinels_included() -> None:
    full = train_tokenizer("unigram", [PROSE.encode()], vocab_size=70, sentinels=9)
    assert full.vocab_size == 70
    assert full.sentinel_ids[0] == 69


def test_without_sentinels_the_ids_are_alberts() -> None:
    tokenizer = train_tokenizer("unigram", [PROSE.encode()], vocab_size=120)
    assert tokenizer.sentinel_ids == ()
    assert "sentinels" not in tokenizer.content()
    assert tokenizer.names[:5] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]


@given(st.lists(st.one_of(ODD, NAMES), max_size=5).map("".join))
def test_a_text_is_given_back_and_has_no_special_id(text: str) -> None:
    ids = TRAINED.encode(text.encode())
    special = set(TRAINED.special_ids) - {TRAINED.unk_id}
    assert not special & set(ids.tolist())
    if TRAINED.unk_id not in ids:
        words = unicodedata.normalize("NFKC", " ".join(text.split()))
        assert TRAINED.decode(ids).decode() == " ".join(words.split())
        assert TRAINED.token_bytes[ids].sum() == len(TRAINED.decode(ids)) + bool(len(ids))


PART = st.text(st.sampled_from("sat on The\n"), max_size=9)


@given(st.lists(st.one_of(PART, st.integers(0, 8)), max_size=6))
def test_gaps_have_their_ids_and_what_is_between_is_text(parts: list[str | int]) -> None:
    expected: list[int] = []
    text = ""
    between = ""
    for part in [*parts, None]:
        if isinstance(part, str):
            between += part
            text += part
            continue
        expected += TRAINED.encode(between.encode()).tolist()
        between = ""
        if part is not None:
            expected.append(TRAINED.sentinel_ids[part])
            text += f"<extra_id_{part}>"
    ids = encode_with_sentinels(TRAINED, text.encode())
    assert ids.dtype == np.int32
    assert ids.tolist() == expected
    again = encode_with_sentinels(TRAINED, TRAINED.decode(ids))
    assert again.tolist() == ids.tolist()


def test_a_sentinel_is_decoded_as_its_name() -> None:
    ids = encode_with_sentinels(TRAINED, b"The <extra_id_0> sat on the <extra_id_1>")
    assert TRAINED.decode([*ids, 1]) == b"The<extra_id_0> sat on the<extra_id_1>"
    without = ids[~np.isin(ids, TRAINED.sentinel_ids)]
    assert TRAINED.decode(without) == b"The sat on the"
    beyond = [TRAINED.sentinel_ids[1], TRAINED.vocab_size]
    assert TRAINED.decode(beyond) == "<extra_id_1>\ufffd".encode()


@pytest.mark.parametrize("name", ["<extra_id_00>", "<extra_id_>", "<extra_id_-1>", "<extra_id_١>"])
def test_what_only_looks_like_a_sentinel_is_text(name: str) -> None:
    ids = encode_with_sentinels(TRAINED, name.encode())
    assert ids.tolist() == TRAINED.encode(name.encode()).tolist()


def test_sentinels_end_before_the_first_that_is_missing() -> None:
    assert find_sentinels({"<extra_id_1>": 4, "<extra_id_0>": 9, "<extra_id_3>": 5}) == (9, 4)
    assert find_sentinels({"<extra_id_1>": 4}) == ()


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    TRAINED.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json", sentinels=9)
    assert isinstance(again, UnigramTokenizer)
    assert again.serialize() == TRAINED.serialize()
    assert again.sentinel_ids == TRAINED.sentinel_ids
    assert again.normalization == AS_WRITTEN


@pytest.mark.parametrize("value", [True, -1, 1.0, "9", 10**30, None])
def test_a_damaged_number_of_sentinels_is_named(value: object) -> None:
    with pytest.raises(DataError, match="^sentinels = .* must be 0 to 100000"):
        UnigramTokenizer.from_content({**TRAINED.content(), "sentinels": value})


def test_a_recipe_trains_them_and_finds_them_again(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(PROSE)
    config = DataConfig(
        path=str(tmp_path / "text"), tokenizer="unigram", vocab_size=65, sentinels=9, context=32
    )
    data = prepare(config, cache=tmp_path / "cache")
    assert data.tokenizer.sentinel_ids == tuple(range(64, 55, -1))
    assert not np.isin(data.train.ids, data.tokenizer.sentinel_ids).any()
    cached = prepare_tokenizer(config, cache=tmp_path / "cache")
    assert cached.fingerprint == data.tokenizer.fingerprint
    fewer = config.model_copy(update={"sentinels": 8})
    assert prepare_tokenizer(fewer, cache=tmp_path / "cache").sentinel_ids[0] == 64
    assert len(prepare_tokenizer(fewer, cache=tmp_path / "cache").sentinel_ids) == 8


def test_two_languages_have_the_sentinels_of_their_vocabulary() -> None:
    both = BilingualTokenizer(TRAINED, LanguageRules("en"), LanguageRules("de"))
    assert both.sentinel_ids == TRAINED.sentinel_ids
    assert both.special_ids == TRAINED.special_ids


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"data.vocab_size": 103},
            "data.vocab_size = 103 is filled by data.sentinels = 100 and 3 special ids: "
            "give at least 104",
        ),
        (
            {"data.tokenizer": "bytes"},
            r"data.sentinels = 100 has no effect with data.tokenizer = 'bytes': it counts "
            r"only where data.tokenizer is unigram or a file \(.json, .model\)",
        ),
        ({"data.tokenizer": "codes"}, "data.sentinels = 100 has no effect"),
        ({"data.sentinels": 100_001}, "data.sentinels = 100001 must be at most 100,000"),
        ({"data.sentinels": -1}, "data.sentinels = -1"),
    ],
)
def test_what_cannot_have_them_is_refused(given: dict[str, object], message: str) -> None:
    settings = {"data.tokenizer": "unigram", "data.sentinels": 100, **given}
    with pytest.raises(ConfigError, match=message):
        load_recipe("gpt", settings)


def test_a_run_that_is_continued_brings_its_own() -> None:
    recipe = load_recipe("gpt", {"data.tokenizer": "unigram", "data.sentinels": 9})
    assert vary(recipe, {"init.run": "runs/first"}).recipe.data.sentinels == 0
    with pytest.raises(ConfigError, match="data.sentinels = 9 has no effect with init.run"):
        load_recipe("gpt", {"init.run": "runs/first", "data.sentinels": 9})


def test_masked_objectives_have_no_use_for_them() -> None:
    message = "data.sentinels = 9 gives data.tokenizer = unigram T5's ids, without"
    with pytest.raises(ConfigError, match=message):
        load_recipe("albert-small", {"data.tokenizer": "unigram", "data.sentinels": 9})


@pytest.mark.parametrize(
    ("kind", "size", "message"),
    [
        ("bpe", 300, "data.sentinels = 9 needs data.tokenizer = unigram, it is 'bpe'"),
        ("unigram", 12, "data.vocab_size = 12 is filled by data.sentinels = 9"),
        ("unigram", 13, "vocab_size = 13 is too small for unigram with data.sentinels = 9"),
    ],
)
def test_what_cannot_be_trained_is_refused(kind: str, size: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train_tokenizer(kind, [PROSE.encode()], vocab_size=size, sentinels=9)
