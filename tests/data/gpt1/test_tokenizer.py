"""GPT-1's tokenizer against ids by hand, the released code slowly, and transformers' class."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from sublayer.data.gpt1.files import read_published
from sublayer.data.gpt1.tokenizer import Gpt1Tokenizer, vocabulary_of, with_normalization
from sublayer.data.gpt1.vocabulary import Gpt1Vocabulary
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers.base import NotUtf8
from sublayer.data.tokenizers.extended import with_names
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import ConfigError, DataError
from tests.data.gpt1 import released
from tests.data.gpt1.test_text_rules import TEXTS

pytest.importorskip("ftfy")
pytest.importorskip("spacy")

CHARACTERS = "abdeghlnortw'.,\"&\\"
MERGES = (
    ("t", "h"),
    ("th", "e</w>"),
    ("e", "r"),
    ("n", "'"),
    ("l", "o"),
    ("lo", "w"),
    ("e", "r</w>"),
    ("low", "er</w>"),
    ("a", "a"),
    ("aa", "a</w>"),
    ("n'", "t</w>"),
)
PIECES = [
    "<unk>",
    *CHARACTERS,
    *(f"{character}</w>" for character in CHARACTERS),
    *(left + right for left, right in MERGES),
    "\n</w>",
]
IDS = {piece: id_ for id_, piece in enumerate(PIECES)}
TINY = Gpt1Tokenizer(Gpt1Vocabulary(IDS, MERGES))
FAST = with_normalization(TINY.vocabulary, "transformers")


def pieces(text: str) -> list[str]:
    return TINY.pieces(TINY.encode(text.encode()).tolist())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # t-h first, then th-e</w>.
        ("The", ["the</w>"]),
        # e-r is merged before er</w> could be: its r does not end the word here.
        ("ert", ["er", "t</w>"]),
        # l-o, lo-w, e-r</w>, low-er</w>; without the first l no lo.
        ("lower", ["lower</w>"]),
        ("hower", ["h", "o", "w", "er</w>"]),
        # One a ends the word: of aaaa two from the left, then the last three.
        ("aaaa", ["aa", "a", "a</w>"]),
        ("aaa", ["aaa</w>"]),
        ("a", ["a</w>"]),
        # What spaCy cuts off a word is a word of its own.
        ("don't", ["d", "o</w>", "n't</w>"]),
        ("the\n\n  the", ["the</w>", "\n</w>", "the</w>"]),
        ("th\u6f22e\u6f22", ["th", "<unk>", "e", "<unk>"]),
        ("a\\b", ["a", "\\", "b</w>"]),
        ("“the”", ['"</w>', "the</w>", '"</w>']),
    ],
)
def test_ids_are_those_worked_out_by_hand(text, expected):
    assert pieces(text) == expected
    assert released.encode(text, IDS, MERGES) == [IDS[piece] for piece in expected]


@given(TEXTS)
def test_ids_are_those_of_the_released_code(text):
    assert TINY.encode(text.encode()).tolist() == released.encode(text, IDS, MERGES)


def published() -> Path:
    folder = Path(os.environ.get("SUBLAYER_TEST_DATA", "")) / "vocab" / "gpt1"
    if "SUBLAYER_TEST_DATA" not in os.environ or not folder.is_dir():
        pytest.skip("SUBLAYER_TEST_DATA names no folder with vocab/gpt1")
    return folder


def test_the_published_vocabulary_has_its_ids():
    tokenizer = load_tokenizer(published())
    assert isinstance(tokenizer, Gpt1Tokenizer)
    assert tokenizer.vocab_size == 40478
    assert (tokenizer.unk_id, tokenizer.special_ids) == (0, (0,))
    assert tokenizer.encode(b"the\nn't Very POSITIVE negative").tolist() == [
        *(481, 40477),
        *(538, 963, 6353, 9503),
    ]
    ids = tokenizer.vocabulary.ids
    assert sorted(ids.values()) == list(range(40478))
    assert (ids["th"], ids["\n</w>"]) == (477, 40477)
    # 238 characters, each again at the end of a word, then the merges in their order.
    assert all(len(piece) == 1 for piece, id_ in ids.items() if 1 <= id_ <= 238)
    made = [left + right for left, right in tokenizer.vocabulary.merges]
    assert [ids[piece] for piece in made] == list(range(477, 40477))
    added = with_names(tokenizer, ("_start_", "_delimiter_", "_classify_"))
    assert list(added.added_ids.values()) == [40478, 40479, 40480]


def test_the_published_merges_take_only_what_earlier_ones_make():
    # Then all of a pair's occurrences are merged before what they make is: one by one is the same.
    merges = load_tokenizer(published()).vocabulary.merges
    made = {left + right: rank for rank, (left, right) in enumerate(merges)}
    assert len(made) == len(merges)
    for rank, pair in enumerate(merges):
        assert all(made.get(piece, -1) < rank for piece in pair)


def test_published_ids_of_books_are_those_of_the_released_code():
    tokenizer = load_tokenizer(published())
    vocabulary = tokenizer.vocabulary
    for book in sorted((published().parents[1] / "books").glob("*.txt")):
        text = book.read_text()[5_000:25_000]
        expected = released.encode(text, vocabulary.ids, vocabulary.merges)
        assert tokenizer.encode(text.encode()).tolist() == expected
        assert 0 not in expected or "_" in text or "\u0153" in text


@given(TEXTS)
def test_transformers_rules_give_its_ids(text):
    from transformers import OpenAIGPTTokenizer

    global _THEIRS
    if _THEIRS is None:
        _THEIRS = OpenAIGPTTokenizer(vocab=dict(IDS), merges=list(MERGES))
    assert FAST.encode(text.encode()).tolist() == _THEIRS(text)["input_ids"]


_THEIRS = None


def test_transformers_rules_are_bert_s_words():
    # Accents go, contractions are cut at the apostrophe, an end of line is a space.
    names = FAST.names
    found = [names[id_] for id_ in FAST.encode("Th\u00e9 n't\na".encode()).tolist()]
    assert found == ["the</w>", "n</w>", "'</w>", "t</w>", "a</w>"]


def test_decoding_puts_a_space_behind_each_word():
    ids = TINY.encode("Lower the\nn't \u6f22".encode())
    assert TINY.decode(ids) == b"lower the \nn't "
    ids = FAST.encode("Lower the\nn't \u6f22".encode())
    assert FAST.decode(ids) == b"lower the n ' t "
    assert b"".join(FAST.decode([id_]) for id_ in ids.tolist()) == FAST.decode(ids)
    assert FAST.token_bytes[ids].tolist() == [5, 3, 1, 1, 1, 0]
    ids = TINY.encode("Lower the\nn't \u6f22".encode())
    assert TINY.token_bytes[ids].tolist() == [5, 3, 1, 3, 0]


@pytest.mark.parametrize("normalization", ["published", "transformers"])
def test_saving_and_loading_changes_nothing(tmp_path, normalization):
    tokenizer = with_normalization(TINY.vocabulary, normalization)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert type(loaded) is type(tokenizer)
    assert loaded.kind == tokenizer.kind == "gpt1-bpe"
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.special_ids == (0,) and loaded.unk_id == 0
    found = vocabulary_of(loaded)
    assert (dict(found.ids), found.merges) == (IDS, MERGES)


@pytest.mark.parametrize("normalization", ["published", "transformers"])
def test_the_rules_of_a_file_are_replaced_by_name(tmp_path, normalization):
    own = with_normalization(TINY.vocabulary, normalization)
    own.save(tmp_path / "tokenizer.json")
    for name, expected in (("published", TINY), ("transformers", FAST)):
        loaded = load_tokenizer(tmp_path / "tokenizer.json", normalization=name)
        assert loaded.fingerprint == expected.fingerprint


def test_the_rules_below_added_ids_are_replaced(tmp_path):
    names = ("_start_", "_classify_")
    with_names(FAST, names).save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path, normalization="published")
    assert loaded.fingerprint == with_names(TINY, names).fingerprint
    assert vocabulary_of(loaded).ids == IDS


def test_rules_are_of_no_other_kind(tmp_path):
    (tmp_path / "tokenizer.json").write_text(
        '{"format": "sublayer-tokenizer", "version": 1, "kind": "bytes"}'
    )
    with pytest.raises(ConfigError, match="normalization = transformers is of GPT-1's .* bytes"):
        load_tokenizer(tmp_path, normalization="transformers")


def write(folder: Path, names=("encoder_bpe_11.json", "vocab_11.bpe"), **changes) -> Path:
    vocabulary = changes.get("vocabulary", IDS)
    lines = changes.get("lines", ["#version: 0.2", *map(" ".join, MERGES)])
    (folder / names[0]).write_text(json.dumps(vocabulary))
    (folder / names[1]).write_text("\n".join([*lines, ""]))
    return folder


@pytest.mark.parametrize(
    "names", [("encoder_bpe_11.json", "vocab_11.bpe"), ("vocab.json", "merges.txt")]
)
def test_files_are_found_by_either_name_or_their_folder(tmp_path, names):
    write(tmp_path, names)
    for path in (tmp_path, *(tmp_path / name for name in names)):
        assert load_tokenizer(path).fingerprint == TINY.fingerprint
    fast = load_tokenizer(tmp_path / names[0], normalization="transformers")
    assert isinstance(fast, SubwordTokenizer) and fast.fingerprint == FAST.fingerprint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lines": ["#version: 0.1", "t h"]}, r"vocab_11.bpe, line 1: '#version: 0.1' is not"),
        ({"lines": ["t h"]}, r"line 1: 't h' is not '#version: 0.2': GPT-1's merges are of that"),
        ({"lines": ["#version: 0.2", "t h e"]}, r"line 2: 't h e' is not a merge"),
        ({"lines": ["#version: 0.2", "", "t h"]}, r"line 2: '' is not a merge"),
        ({"lines": ["#version: 0.2", "t h", "t h"]}, r"line 3: 't' and 'h' are merged before"),
        (
            {"lines": ["#version: 0.2", "t h", "w o"]},
            r"line 3: 'w' and 'o' need 'wo', which .*encoder_bpe_11.json lacks: .* versions",
        ),
        (
            {"lines": ["#version: 0.2", *map(" ".join, MERGES[:-1])]},
            r"encoder_bpe_11.json has \"n't</w>\", which no merge of .*vocab_11.bpe makes",
        ),
        ({"vocabulary": {"a": 0, "b": 1}}, r"encoder_bpe_11.json has no <unk>"),
        ({"vocabulary": {"<unk>": 0, "a": 0}}, "have the same id, 0"),
        ({"vocabulary": ["a"]}, "is not an object of pieces and their ids"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(tmp_path, changes, message):
    write(tmp_path, **changes)
    with pytest.raises(DataError, match=message) as raised:
        load_tokenizer(tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "names", [("encoder_bpe_11.json", "vocab_11.bpe"), ("vocab.json", "merges.txt")]
)
@pytest.mark.parametrize("gone", [0, 1])
def test_one_without_the_other_is_refused(tmp_path, names, gone):
    write(tmp_path, names)
    (tmp_path / names[gone]).unlink()
    left, missing = names[1 - gone], names[gone]
    for path in (tmp_path, tmp_path / left):
        with pytest.raises(DataError, match=f"{left} is without {missing}: .* belong together"):
            load_tokenizer(path)


def test_two_vocabularies_in_a_folder_are_refused(tmp_path):
    write(tmp_path)
    write(tmp_path, ("encoder_bpe_12.json", "vocab_12.bpe"))
    with pytest.raises(DataError, match=r"has encoder_bpe_11.json and .*: name the file to read"):
        load_tokenizer(tmp_path)
    assert load_tokenizer(tmp_path / "vocab_12.bpe").fingerprint == TINY.fingerprint


def test_special_pieces_have_no_text(tmp_path):
    names = ["<s>", "[PAD]", "_start_"]
    more = {**IDS, **{name: len(IDS) + 3 + number for number, name in enumerate(names)}}
    vocabulary = read_published(
        *(
            write(tmp_path, vocabulary=more) / name
            for name in ("encoder_bpe_11.json", "vocab_11.bpe")
        )
    )
    for normalization in ("published", "transformers"):
        tokenizer = with_normalization(vocabulary, normalization)
        assert tokenizer.vocab_size == len(IDS) + 6
        assert tokenizer.special_ids == (0, *(more[name] for name in names))
        ids = [more["<s>"], *tokenizer.encode(b"the"), more["_start_"], len(IDS)]
        assert tokenizer.decode(ids).strip() == b"the"
        assert tokenizer.pad_id == more["[PAD]"]
        assert not set(tokenizer.encode(b"<s> _start_ [PAD]").tolist()) & set(
            tokenizer.special_ids[1:]
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": None}, "its vocabulary is not an object of pieces and their ids"),
        ({"ids": {"<unk>": -1}}, "the id of '<unk>' is -1"),
        ({"ids": {"a": 0}}, "its vocabulary has no <unk>"),
        ({"merges": [["t"]]}, "its merges are missing or damaged"),
        ({"merges": [["t", "h"]]}, "which no merge of its merges makes"),
    ],
)
def test_damage_is_found_when_read(tmp_path, change, message):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**TINY.content(), **change}))
    with pytest.raises(DataError, match=f"tokenizer.json: .*{message}"):
        load_tokenizer(path)


def test_bytes_that_are_no_utf8_are_refused_with_their_line():
    with pytest.raises(NotUtf8, match="line 2: byte 0xff"):
        TINY.encode(b"a\n\xff")


def test_an_empty_text_has_no_id():
    assert TINY.encode(b"").dtype == np.int32
    assert len(TINY.encode(b" \n")) == len(FAST.encode(b" \n")) == 0
