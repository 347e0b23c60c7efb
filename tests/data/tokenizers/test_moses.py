import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.tokenizers.base import NotUtf8
from sublayer.data.tokenizers.moses import SPECIALS, MosesTokenizer
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.errors import ConfigError, DataError

PROSE = (
    "It is a truth, e.g. universally acknowledged: "
    "a single man's fortune (“or” 1,000) isn't his & hers.\n" * 5
)
TRAINED = MosesTokenizer.train([PROSE.encode()], vocab_size=120)
ODD = st.text(st.sampled_from("ab 's1.,(\n\t\r\u00a0\u2028Éé“&漢"), max_size=40)


def pieces(tokenizer, text):
    names = (*SPECIALS, *tokenizer.content()["pieces"])
    return [names[id_] for id_ in tokenizer.encode(text.encode())]


def test_special_ids_have_fairseqs_order():
    assert SPECIALS == ("<Lua heritage>", "<pad>", "</s>", "<unk>", "<mask>", "<cls>")
    assert (TRAINED.pad_id, TRAINED.sep_id, TRAINED.unk_id, TRAINED.mask_id, TRAINED.cls_id) == (
        1,
        2,
        3,
        4,
        5,
    )
    assert TRAINED.special_ids == (0, 1, 2, 3, 4, 5)
    assert TRAINED.token_bytes[:6].sum() == 0
    assert TRAINED.decode([5, 2, 0, 1, 3, 4]) == b""


def test_text_is_moses_tokens_in_lower_case():
    # Quotes are made straight, an abbreviation keeps its stop, nothing is escaped.
    assert (
        TRAINED.decode(TRAINED.encode("Man's “fortune” & e.g. his.".encode()))
        == b'man \'s " fortune " & e.g. his . '
    )


def test_words_begin_after_an_end_of_word():
    ids = TRAINED.encode(b"universal truth")
    names = pieces(TRAINED, "universal truth")
    assert names[-1] == "truth</w>" and len(names) > 2
    assert TRAINED.starts_word(ids).tolist() == [
        True,
        *(name.endswith("</w>") for name in names[:-1]),
    ]
    assert TRAINED.starts_word(np.array([5, ids[0], ids[1], 2, ids[0]])).tolist() == [
        True,
        True,
        False,
        True,
        True,
    ]
    assert TRAINED.starts_word(ids[:0]).tolist() == []


def test_names_of_special_ids_are_text():
    assert not set(TRAINED.encode(b"<pad> </s> <mask> <cls>").tolist()) & {0, 1, 2, 4, 5}


def test_merges_are_applied_in_the_order_of_training():
    # l-o is twice in "lo lo", o-w</w> once: lo</w> is a word of its own, "low" begins with the same
    # two letters.
    tokenizer = MosesTokenizer.train([b"lo lo low low low"], n_merges=2)
    assert tokenizer.content()["pieces"] == [
        "l",
        "o",
        "w",
        "l</w>",
        "o</w>",
        "w</w>",
        "lo",
        "low</w>",
    ]
    assert tokenizer.content()["merges"] == [["l", "o"], ["lo", "w</w>"]]
    assert pieces(tokenizer, "lo low wol") == ["l", "o</w>", "low</w>", "w", "o", "l</w>"]


def test_an_unknown_character_is_the_unknown_id():
    assert TRAINED.encode("漢".encode()).tolist() == [TRAINED.unk_id]


def test_training_again_gives_the_same_file():
    assert MosesTokenizer.train([PROSE.encode()], vocab_size=120).serialize() == TRAINED.serialize()
    assert TRAINED.vocab_size == 120


@given(ODD, st.integers(0, 100))
def test_a_cut_changes_no_id(text, near):
    data = text.encode()
    place = TRAINED.cut(data, min(near, len(data)))
    parts = np.concatenate([TRAINED.encode(data[:place]), TRAINED.encode(data[place:])])
    assert parts.tolist() == TRAINED.encode(data).tolist()
    assert place <= near


def test_saving_and_loading_changes_nothing(tmp_path):
    TRAINED.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, MosesTokenizer)
    assert loaded.fingerprint == TRAINED.fingerprint
    assert loaded.encode(PROSE.encode()).tolist() == TRAINED.encode(PROSE.encode()).tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pieces": None}, "pieces or merges are missing"),
        ({"pieces": ["a", 1]}, "pieces or merges are damaged"),
        ({"pieces": ["a", "a"], "merges": []}, "merges do not make its pieces"),
        ({"pieces": ["a"], "merges": [["a", "b"]]}, "merges do not make its pieces"),
        ({"merges": [["a"]]}, "pieces or merges are damaged"),
    ],
)
def test_damage_is_found_when_read(tmp_path, change, message):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**TRAINED.content(), **change}))
    with pytest.raises(DataError, match=f"tokenizer.json: its {message}"):
        load_tokenizer(path)


@pytest.mark.parametrize(
    ("text", "size", "error", "message"),
    [
        (b"abc", 11, ConfigError, "data.vocab_size = 11 is too small for moses-bpe: 12 are"),
        (b" \n", 100, DataError, "there is no text to train a tokenizer on"),
        (b"a\n\xff", 100, NotUtf8, "line 2: byte 0xff"),
    ],
)
def test_what_cannot_be_trained_is_refused(text, size, error, message):
    with pytest.raises(error, match=message):
        MosesTokenizer.train([text], vocab_size=size)


def test_without_sacremoses_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(
        ConfigError, match=r"rules for text need sacremoses: pip install 'sublayer\[translation\]'"
    ):
        train_tokenizer("moses-bpe", [b"a text"])
    loaded = MosesTokenizer.from_content(TRAINED.content())
    assert loaded.decode([6]) != b""
    with pytest.raises(ConfigError, match="need sacremoses"):
        loaded.encode(b"a text")
