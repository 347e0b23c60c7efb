import base64
import json
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.tokenizers.base import NotUtf8
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.data.tokenizers.normalization import Normalization
from sublayer.data.tokenizers.words import SPACE
from sublayer.errors import ConfigError, DataError
from tests.data.sentences import sentences

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
    processor = SentencePieceProcessor(
        model_file=str(real_data / "vocab" / "albert" / "spiece.model")
    )
    found = sentences(real_data)
    assert len(found) > 1000
    for sentence in found:
        assert published.encode(sentence.encode()).tolist() == released_ids(processor, sentence), (
            sentence
        )


def test_lines_are_encoded_one_by_one(published, real_data):
    found = sentences(real_data)
    whole = published.encode("\n".join(found).encode())
    assert whole.tolist() == [
        id_ for sentence in found for id_ in published.encode(sentence.encode()).tolist()
    ]


def test_transformers_own_conversion_differs_after_punctuation_and_in_quotes(published, real_data):
    from transformers import AlbertTokenizer

    theirs = AlbertTokenizer.from_pretrained(real_data / "vocab" / "albert")

    def differ(text):
        ids = theirs(text, add_special_tokens=False, split_special_tokens=True).input_ids
        return published.encode(text.encode()).tolist() != ids

    assert not differ("a naïve truth, universally acknowledged in 1813.")
    # It begins a word after each piece that stands alone, rewrites quotes, and takes "▁12," for a
    # piece.
    assert all(map(differ, ["the (first) word", "``quoted''", "12,345"]))


def test_a_comma_after_a_digit_stands_alone(published):
    assert pieces(published, "In 2018, 12,345.") == ["▁in", "▁2018", ",", "▁12", ",", "345", "."]
    undivided = UnigramTokenizer(published.model, Normalization(divide_digit_commas=False))
    assert pieces(undivided, "In 2018, 12,345.") == ["▁in", "▁2018,", "▁12,", "345", "."]


def test_text_is_lowered_and_stripped_of_accents(published):
    assert pieces(published, "  Zoë\t\u00a0CAFÉ ") == pieces(published, "zoe cafe")
    assert pieces(published, "ΟΔΟΣ") == pieces(published, "οδος")


def test_names_of_special_ids_are_text(published):
    ids = published.encode(b"[MASK] [CLS] <pad>")
    assert not {0, 2, 3, 4} & set(ids.tolist())


def test_the_published_model_has_what_masks_need(published):
    assert (
        published.pad_id,
        published.unk_id,
        published.cls_id,
        published.sep_id,
        published.mask_id,
    ) == (
        0,
        1,
        2,
        3,
        4,
    )
    assert published.special_ids == (0, 1, 2, 3, 4)
    assert published.vocab_size == 30_000
    assert published.end_id is None
    assert published.normalization == Normalization(True, False, True)
    assert published.token_bytes[:5].tolist() == [0] * 5
    assert published.decode([2, *published.encode(b"a word"), 3]) == b"a word"


def test_words_begin_where_the_release_says(published):
    ids = published.encode(b"don't misunderstand 2019, (well-known) e.g. U.S.A")
    found = list(
        zip(
            pieces(published, "don't misunderstand 2019, (well-known) e.g. U.S.A"),
            published.starts_word(ids),
            strict=True,
        )
    )
    for piece, starts in found:
        is_inner = piece.isascii() and piece.isalpha()
        assert starts == (not is_inner), piece
    assert ("'", True) in found and ("(", True) in found and (",", True) in found
    assert published.starts_word(np.array([0, 1, 2, 3, 4])).all()
    assert published.starts_word(np.array([[0, 1], [2, 3]])).shape == (2, 2)


def test_trained_ids_have_alberts_order():
    assert TRAINED.names[:13] == [
        "<pad>",
        "<unk>",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "(",
        ")",
        '"',
        "-",
        ".",
        "–",
        "£",
        "€",
    ]
    assert TRAINED.special_ids == (0, 1, 2, 3, 4)
    assert 13 < TRAINED.vocab_size <= 120
    assert TRAINED.vocab_size == len(TRAINED.token_bytes)
    assert TRAINED.has_words and not TRAINED.is_lossless


def test_training_again_and_in_parts_gives_the_same_file():
    data = PROSE.encode()
    assert UnigramTokenizer.train([data], vocab_size=120).serialize() == TRAINED.serialize()
    place = TRAINED.cut(data, 700)
    assert (
        UnigramTokenizer.train([data[:place], data[place:]], vocab_size=120).fingerprint
        == TRAINED.fingerprint
    )


def test_a_short_text_holds_fewer_pieces_than_asked():
    assert UnigramTokenizer.train([b"aaaa"], vocab_size=1000).names[13:] == ["aa", "a", "▁"]


def test_long_lines_are_learned_from():
    line = " ".join(f"unmistakable{number % 7}" for number in range(2000)).encode()
    assert UnigramTokenizer.train([line], vocab_size=60).encode(b"unmistakable3").size < 6


def test_a_byte_that_is_not_utf8_is_named_wherever_it_is():
    for texts in ([b"\xff"], [b"some words\n" * 50, b"more\n\xff"]):
        with pytest.raises(NotUtf8, match="byte 0xff is not UTF-8"):
            UnigramTokenizer.train(texts, vocab_size=60)


@pytest.mark.parametrize(
    ("text", "size", "error", "message"),
    [
        (b"hello world", 20, ConfigError, "data.vocab_size = 20 is too small for unigram"),
        (b" \n\n", 100, DataError, "there is no text to train a tokenizer on"),
        (b"a\n\xff", 100, NotUtf8, "line 2: byte 0xff"),
    ],
)
def test_what_cannot_be_trained_is_refused(text, size, error, message):
    with pytest.raises(error, match=message):
        UnigramTokenizer.train([text], vocab_size=size)


@given(ODD, st.integers(0, 200))
def test_a_cut_changes_no_id(text, near):
    data = text.encode()
    place = TRAINED.cut(data, min(near, len(data)))
    parts = np.concatenate([TRAINED.encode(data[:place]), TRAINED.encode(data[place:])])
    assert parts.tolist() == TRAINED.encode(data).tolist()
    assert place <= near


@given(ODD)
def test_decoding_gives_the_normalised_text(text):
    ids = TRAINED.encode(text.encode())
    if TRAINED.unk_id not in ids:
        normal = " ".join(TRAINED.normalization.lines(text))
        assert TRAINED.decode(ids).decode() == unicodedata.normalize(
            "NFKC", " ".join(normal.split())
        )
        assert TRAINED.token_bytes[ids].sum() == len(TRAINED.decode(ids)) + bool(len(ids))


def test_saving_and_loading_changes_nothing(tmp_path):
    TRAINED.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, UnigramTokenizer)
    assert loaded.fingerprint == TRAINED.fingerprint
    assert loaded.encode(PROSE.encode()).tolist() == TRAINED.encode(PROSE.encode()).tolist()
    assert loaded.token_characters.tolist() == TRAINED.token_characters.tolist()


def change(name, value):
    return lambda content: content.__setitem__(name, value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            change("model", base64.b64encode(TRAINED.model[:-9]).decode()),
            "does not have its checksum",
        ),
        (change("model", "?"), "not base64"),
        (change("model", None), "does not have its checksum"),
        (change("do_lower_case", "yes"), "do_lower_case = 'yes' must be true or false"),
        (lambda content: content.pop("keep_accents"), "keep_accents = None must be true or false"),
    ],
)
def test_damage_is_found_when_read(tmp_path, damage, message):
    content = TRAINED.content()
    damage(content)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=f"tokenizer.json: .*{message}"):
        load_tokenizer(tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    "content", [b"", b"text", TRAINED.model[:1000], TRAINED.model[:-1], bytes(50)]
)
def test_a_damaged_model_is_named(tmp_path, content):
    path = tmp_path / "spiece.model"
    path.write_bytes(content)
    with pytest.raises(
        DataError, match=r"spiece.model: the file is not a SentencePiece model, or it is damaged"
    ):
        load_tokenizer(path)


def test_a_model_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"cannot read the tokenizer .*spiece.model: No such file"):
        load_tokenizer(tmp_path / "spiece.model")


def test_settings_beside_a_model_win_over_its_pieces(tmp_path):
    (tmp_path / "spiece.model").write_bytes(TRAINED.model)
    assert load_tokenizer(tmp_path).normalization == Normalization()
    (tmp_path / "tokenizer_config.json").write_text(
        '{"do_lower_case": false, "keep_accents": true}'
    )
    assert load_tokenizer(tmp_path).normalization == Normalization(
        do_lower_case=False, keep_accents=True
    )
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(DataError, match=r"tokenizer_config.json holds no JSON object"):
        load_tokenizer(tmp_path)


def test_rules_are_found_from_pieces():
    assert Normalization.of(["▁the", "▁한국"], is_masked=True) == Normalization()
    assert Normalization.of(["▁The"], is_masked=True).do_lower_case is False
    assert Normalization.of(["▁é"], is_masked=False) == Normalization(True, True, False)
