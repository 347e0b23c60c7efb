"""ALBERT's model against the release, unigram trained, and the sentinels of T5 behind it."""

import base64
import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

from sublayer.config.data import DataConfig
from sublayer.config.layering.layers import load_recipe, vary
from sublayer.data.prepare import prepare, prepare_tokenizer
from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.data.tokenizers.language_rules import LanguageRules
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.data.tokenizers.normalization import AS_WRITTEN, Normalization
from sublayer.data.tokenizers.sentinels import find_sentinels
from sublayer.data.tokenizers.words import SPACE
from sublayer.errors import ConfigError, DataError
from tests.breadth import examples
from tests.data.sentences import sentences
from tests.sentinels import encode_with_sentinels

PROSE = (
    "It is a truth universally acknowledged, in 1813, "
    "that a single man's fortune (naïve, or £1,000) isn't his.\n" * 20
)

TRAINED = UnigramTokenizer.train([PROSE.encode()], vocab_size=120)

ODD = st.text(st.sampled_from("ab 's19,.(\n\t\r\u00a0\u0085\u2028\x1cÉéσΣ\u0301漢"), max_size=60)


@pytest.fixture(scope="module")
def published(real_data):
    return load_tokenizer(real_data / "vocab" / "albert" / "spiece.model")


def pieces(tokenizer, text):
    return [tokenizer.names[id_] for id_ in tokenizer.encode(text.encode())]


def released_ids(processor, sentence):
    """The release's rules, step by step: its ``preprocess_text`` and ``encode_pieces``."""
    text = unicodedata.normalize("NFKD", " ".join(sentence.split()))
    text = "".join(each for each in text if unicodedata.combining(each) == 0).lower()
    found = []
    for piece in processor.encode(text, out_type=str):
        if len(piece) > 1 and piece.endswith(",") and piece[-2].isdigit():
            found += [*processor.encode(piece[:-1].replace(SPACE, ""), out_type=str), ","]
        else:
            found.append(piece)
    return [processor.piece_to_id(piece) for piece in found]


def test_the_published_model_gives_the_ids_of_the_release(published, real_data):
    model = real_data / "vocab" / "albert" / "spiece.model"
    processor = SentencePieceProcessor(model_file=str(model))
    lines = sentences(real_data)
    assert len(lines) > 1000
    rows = [published.encode(line.encode()).tolist() for line in lines]
    for line, ids in zip(lines, rows, strict=True):
        assert ids == released_ids(processor, line), line
    # Lines are encoded one by one.
    whole = published.encode("\n".join(lines).encode())
    assert whole.tolist() == [id_ for ids in rows for id_ in ids]


def test_the_published_model_has_its_ids_and_rules(published):
    assert published.special_ids == (0, 1, 2, 3, 4)
    ids = [getattr(published, f"{name}_id") for name in ("pad", "unk", "cls", "sep", "mask", "end")]
    assert ids == [0, 1, 2, 3, 4, None]
    assert published.vocab_size == 30_000
    assert published.normalization == Normalization(True, False, True)
    assert published.decode([2, *published.encode(b"a word"), 3]) == b"a word"
    # Text is lowered and stripped of accents; a comma after a digit stands alone.
    assert pieces(published, "  Zoë\t\u00a0CAFÉ ") == pieces(published, "zoe cafe")
    assert pieces(published, "ΟΔΟΣ") == pieces(published, "οδος")
    assert pieces(published, "In 2018, 12,345.") == ["▁in", "▁2018", ",", "▁12", ",", "345", "."]
    undivided = UnigramTokenizer(published.model, Normalization(divide_digit_commas=False))
    assert pieces(undivided, "In 2018, 12,345.") == ["▁in", "▁2018,", "▁12,", "345", "."]


def test_words_begin_where_the_release_says(published):
    text = "don't misunderstand 2019, (well-known) e.g. U.S.A"
    starts = published.starts_word(published.encode(text.encode()))
    found = list(zip(pieces(published, text), starts, strict=True))
    for piece, starts in found:
        assert starts == (not (piece.isascii() and piece.isalpha())), piece
    assert {("'", True), ("(", True), (",", True)} <= set(found)
    assert published.starts_word(np.array([[0, 1], [2, 3]])).all()


def test_trained_ids_have_alberts_order_in_parts_too():
    first = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", *'()"-.', "–", "£", "€"]
    assert TRAINED.names[:13] == first
    assert TRAINED.special_ids == (0, 1, 2, 3, 4)
    assert 13 < TRAINED.vocab_size <= 120
    assert TRAINED.has_words and not TRAINED.is_lossless
    data = PROSE.encode()
    place = TRAINED.cut(data, 700)
    parts = UnigramTokenizer.train([data[:place], data[place:]], vocab_size=120)
    assert parts.serialize() == TRAINED.serialize()
    assert UnigramTokenizer.train([b"aaaa"], vocab_size=1000).names[13:] == ["aa", "a", "▁"]
    line = " ".join(f"unmistakable{number % 7}" for number in range(2000)).encode()
    assert UnigramTokenizer.train([line], vocab_size=60).encode(b"unmistakable3").size < 6


@examples(250)
@given(ODD)
def test_decoding_gives_the_normalised_text(text):
    ids = TRAINED.encode(text.encode())
    if TRAINED.unk_id not in ids:
        normal = " ".join(TRAINED.normalization.lines(text))
        assert TRAINED.decode(ids).decode() == unicodedata.normalize(
            "NFKC", " ".join(normal.split())
        )
        assert TRAINED.token_bytes[ids].sum() == len(TRAINED.decode(ids)) + bool(len(ids))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("model", base64.b64encode(TRAINED.model[:-9]).decode(), "does not have its checksum"),
        ("model", "?", "not base64"),
        ("model", None, "does not have its checksum"),
        ("do_lower_case", "yes", "do_lower_case = 'yes' must be true or false"),
        ("keep_accents", None, "keep_accents = None must be true or false"),
        ("sentinels", True, "sentinels = .* must be 0 to 100000"),
        ("sentinels", -1, "sentinels = .* must be 0 to 100000"),
        ("sentinels", 100_001, "sentinels = .* must be 0 to 100000"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, name, value, message):
    (tmp_path / "tokenizer.json").write_text(json.dumps({**TRAINED.content(), name: value}))
    with pytest.raises(DataError, match=f"tokenizer.json: .*{message}"):
        load_tokenizer(tmp_path)


def test_a_damaged_or_missing_model_is_refused(tmp_path):
    path = tmp_path / "spiece.model"
    for content in (b"", b"text", TRAINED.model[:1000], TRAINED.model[:-1], bytes(50)):
        path.write_bytes(content)
        with pytest.raises(DataError, match="spiece.model: the file is not a SentencePiece model"):
            load_tokenizer(path)
    path.unlink()
    with pytest.raises(DataError, match=r"cannot read the tokenizer .*spiece.model: No such file"):
        load_tokenizer(path)


def test_rules_are_those_of_settings_or_of_pieces(tmp_path):
    (tmp_path / "spiece.model").write_bytes(TRAINED.model)
    assert load_tokenizer(tmp_path).normalization == Normalization()
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text('{"do_lower_case": false, "keep_accents": true}')
    rules = Normalization(do_lower_case=False, keep_accents=True)
    assert load_tokenizer(tmp_path).normalization == rules
    settings.write_text("[]")
    with pytest.raises(DataError, match=r"tokenizer_config.json holds no JSON object"):
        load_tokenizer(tmp_path)
    assert Normalization.of(["▁the", "▁한국"], is_masked=True) == Normalization()
    assert Normalization.of(["▁The"], is_masked=True).do_lower_case is False
    assert Normalization.of(["▁é"], is_masked=False) == Normalization(True, True, False)


CASED = (
    PROSE.encode() + "The Cat sat on the Mat (naïve, £1,000); <extra_id_7> is text.\n".encode() * 20
)
MARKED = train_tokenizer("unigram", [CASED], vocab_size=120, sentinels=9)
NAMES = st.sampled_from(["<extra_id_0>", "<extra_id_8>", "<extra_id_9>", "</s>", "<pad>", "<unk>"])
PART = st.text(st.sampled_from("sat on The\n"), max_size=9)


def test_ids_with_sentinels_have_t5s_order() -> None:
    names, last = MARKED.names, MARKED.vocab_size - 1
    assert names[:3] == ["<pad>", "</s>", "<unk>"]
    assert [names[id_] for id_ in MARKED.sentinel_ids] == [f"<extra_id_{k}>" for k in range(9)]
    assert MARKED.sentinel_ids == tuple(range(last, last - 9, -1))
    ids = [getattr(MARKED, f"{name}_id") for name in ("pad", "sep", "unk", "cls", "mask", "end")]
    assert ids == [0, 1, 2, None, None, None]
    assert MARKED.special_ids == (0, 1, 2, *range(last - 8, last + 1))
    assert MARKED.token_bytes[list(MARKED.special_ids)].tolist() == [0] * 12
    assert MARKED.starts_word(np.array(MARKED.special_ids)).all()
    assert MARKED.normalization == AS_WRITTEN
    full = train_tokenizer("unigram", [CASED], vocab_size=70, sentinels=9)
    assert (full.vocab_size, full.sentinel_ids[0]) == (70, 69)


@examples(250)
@given(st.lists(st.one_of(ODD, NAMES), max_size=5).map("".join))
def test_a_text_with_the_names_of_sentinels_is_given_back(text: str) -> None:
    ids = MARKED.encode(text.encode())
    assert not set(MARKED.special_ids) - {MARKED.unk_id} & set(ids.tolist())
    if MARKED.unk_id not in ids:
        words = unicodedata.normalize("NFKC", " ".join(text.split()))
        assert MARKED.decode(ids).decode() == " ".join(words.split())
        assert MARKED.token_bytes[ids].sum() == len(MARKED.decode(ids)) + bool(len(ids))


@examples(250)
@given(st.lists(st.one_of(PART, st.integers(0, 8)), max_size=6))
def test_gaps_have_the_ids_of_sentinels_and_text_is_between(parts: list[str | int]) -> None:
    expected: list[int] = []
    text = between = ""
    for part in [*parts, None]:
        if isinstance(part, str):
            between += part
            text += part
            continue
        expected += MARKED.encode(between.encode()).tolist()
        between = ""
        if part is not None:
            expected.append(MARKED.sentinel_ids[part])
            text += f"<extra_id_{part}>"
    ids = encode_with_sentinels(MARKED, text.encode())
    assert ids.dtype == np.int32
    assert ids.tolist() == expected
    assert encode_with_sentinels(MARKED, MARKED.decode(ids)).tolist() == expected


def test_a_sentinel_is_decoded_as_its_name() -> None:
    ids = encode_with_sentinels(MARKED, b"The <extra_id_0> sat on the <extra_id_1>")
    assert MARKED.decode([*ids, 1]) == b"The<extra_id_0> sat on the<extra_id_1>"
    assert MARKED.decode(ids[~np.isin(ids, MARKED.sentinel_ids)]) == b"The sat on the"
    beyond = [MARKED.sentinel_ids[1], MARKED.vocab_size]
    assert MARKED.decode(beyond) == "<extra_id_1>\ufffd".encode()
    for name in ("<extra_id_00>", "<extra_id_>", "<extra_id_-1>", "<extra_id_١>"):
        ids = encode_with_sentinels(MARKED, name.encode())
        assert ids.tolist() == MARKED.encode(name.encode()).tolist()
    # They end before the first that is missing.
    assert find_sentinels({"<extra_id_1>": 4, "<extra_id_0>": 9, "<extra_id_3>": 5}) == (9, 4)
    assert find_sentinels({"<extra_id_1>": 4}) == ()


def test_a_recipe_trains_sentinels_and_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(CASED)
    path = str(tmp_path / "text")
    config = DataConfig(path=path, tokenizer="unigram", vocab_size=65, sentinels=9, context=32)
    data = prepare(config, cache=tmp_path / "cache")
    assert data.tokenizer.sentinel_ids == tuple(range(64, 55, -1))
    assert not np.isin(data.train.ids, data.tokenizer.sentinel_ids).any()
    cached = prepare_tokenizer(config, cache=tmp_path / "cache")
    assert cached.fingerprint == data.tokenizer.fingerprint
    fewer = config.model_copy(update={"sentinels": 8})
    ids = prepare_tokenizer(fewer, cache=tmp_path / "cache").sentinel_ids
    assert (ids[0], len(ids)) == (64, 8)
    both = BilingualTokenizer(MARKED, LanguageRules("en"), LanguageRules("de"))
    assert (both.sentinel_ids, both.special_ids) == (MARKED.sentinel_ids, MARKED.special_ids)


@pytest.mark.parametrize(
    ("recipe", "settings", "field"),
    [
        ("gpt", {"data.vocab_size": 103}, "data.vocab_size = 103"),
        ("gpt", {"data.tokenizer": "bytes"}, "data.sentinels = 100 has no effect"),
        ("gpt", {"data.sentinels": 100_001}, "data.sentinels = 100001"),
        ("gpt", {"data.sentinels": -1}, "data.sentinels = -1"),
        ("albert-small", {}, "data.sentinels = 100 gives data.tokenizer = unigram T5's ids"),
    ],
)
def test_recipes_without_use_for_sentinels_are_refused(recipe, settings, field) -> None:
    with pytest.raises(ConfigError, match=field):
        load_recipe(recipe, {"data.tokenizer": "unigram", "data.sentinels": 100, **settings})


def test_a_run_that_is_continued_brings_its_sentinels() -> None:
    recipe = load_recipe("gpt", {"data.tokenizer": "unigram", "data.sentinels": 9})
    assert vary(recipe, {"init.run": "runs/first"}).recipe.data.sentinels == 0
    with pytest.raises(ConfigError, match="data.sentinels = 9 has no effect with init.run"):
        load_recipe("gpt", {"init.run": "runs/first", "data.sentinels": 9})


@pytest.mark.parametrize(
    ("kind", "size", "message"),
    [
        ("bpe", 300, "data.sentinels = 9 needs data.tokenizer = unigram, it is 'bpe'"),
        ("unigram", 12, "data.vocab_size = 12 is filled by data.sentinels = 9"),
        ("unigram", 13, "vocab_size = 13 is too small for unigram with data.sentinels = 9"),
    ],
)
def test_sentinels_that_leave_no_room_are_refused(kind: str, size: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train_tokenizer(kind, [CASED], vocab_size=size, sentinels=9)
