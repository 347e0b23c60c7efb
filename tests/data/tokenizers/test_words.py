"""Words, characters and WordPiece: ids, counts and cuts, against transformers and the release."""

import copy
import json
import unicodedata

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers import words as words_module
from sublayer.data.tokenizers.base import Tokenizer, check_masking
from sublayer.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer, character_start
from sublayer.data.tokenizers.extended import with_names
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.data.tokenizers.shown import show_tokens, special_names
from sublayer.data.tokenizers.wordpiece import SPECIALS, train_wordpiece
from sublayer.data.tokenizers.words import (
    Ragged,
    WordCache,
    begins_word,
    encode_words,
    split_before_spaces,
    split_words,
)
from sublayer.errors import ConfigError, DataError
from tests.breadth import examples
from tests.data.sentences import sentences


@examples(200)
@given(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1), st.data())
def test_rows_are_taken_one_after_another(rows, data):
    numbers = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20))
    found = Ragged(rows).take(np.array(numbers, dtype=np.int64))
    assert found.tolist() == [id_ for number in numbers for id_ in rows[number]]
    assert found.dtype == np.int32


def test_each_different_word_is_encoded_once():
    seen = []

    def encode(words):
        seen.extend(words)
        return [[len(word), 7] for word in words]

    assert encode_words(["a", "bb", "a", "a"], encode).tolist() == [1, 7, 2, 7, 1, 7, 1, 7]
    assert seen == ["a", "bb"]
    assert encode_words([], encode).tolist() == []


def test_text_is_divided_at_spaces_and_ends_of_lines():
    assert split_words(" a b\n\nc\td\x1ce ") == ["a", "b", "c\td\x1ce"]
    # A tab, a carriage return and what follows a space begin none.
    text = " a  b\tc d\r\n\x1ce\n\nf "
    assert split_before_spaces(text) == [" a", "  b\tc", " d\r\n\x1ce", "\n\nf", " "]
    assert split_before_spaces("") == []


def test_pieces_begin_words_as_released():
    begin = ("▁the", "▁", "<unk>", ",", "(", "'", "'s", "–", "€", "9", "a9", "é", "漢")
    assert all(map(begins_word, begin))
    assert not any(map(begins_word, ("the", "A", "..", "ing.")))


@pytest.mark.parametrize(("most", "most_characters"), [(1, 99), (99, 9), (99, 99)])
def test_a_word_is_encoded_once_and_what_is_forgotten_again(monkeypatch, most, most_characters):
    monkeypatch.setattr(words_module, "_MOST_WORDS", most)
    monkeypatch.setattr(words_module, "_MOST_CHARACTERS", most_characters)
    random = np.random.default_rng(0)
    known = ["a", "bb", "", "dddd", "long enough", "f", "gg"]
    cache = WordCache()
    seen = []

    def encode(words):
        seen.extend(words)
        return [[len(word)] * len(word) for word in words]

    for _ in range(40):
        words = [known[number] for number in random.integers(0, len(known), 6)]
        expected = [len(word) for word in words for _ in word]
        assert cache.encode(words, encode).tolist() == expected
    # With room for all, each was asked for once.
    assert (len(seen) == len(known)) == (most == most_characters == 99)


def test_a_cache_that_could_not_encode_knows_nothing_wrong():
    cache = WordCache()

    def fail(words):
        raise ValueError

    with pytest.raises(ValueError):
        cache.encode(["a"], fail)
    assert cache.encode(["a"], lambda words: [[3]]).tolist() == [3]
    assert copy.deepcopy(cache).encode(["a"], lambda words: [[4]]).tolist() == [4]


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_known_bytes_and_characters_round_trip_and_count(text):
    data = text.encode()
    characters = CharacterTokenizer.train([data[:0], data])
    for tokenizer, n_ids in ((ByteTokenizer(), len(data)), (characters, len(text))):
        ids = tokenizer.encode(data)
        assert len(ids) == n_ids
        assert tokenizer.decode(ids) == data
        assert tokenizer.token_bytes[ids].sum() == len(data)
        assert tokenizer.token_characters[ids].sum() == len(text)
        assert tokenizer.unk_id is None or tokenizer.unk_id not in ids
    assert ByteTokenizer().encode(data).tolist() == list(data)


def test_characters_are_numbered_by_code_after_the_unknown():
    tokenizer = CharacterTokenizer.train(["bé".encode(), b"ab"])
    assert tokenizer.vocab_size == 4
    assert tokenizer.encode("abé!".encode()).tolist() == [1, 2, 3, 0]
    assert tokenizer.token_bytes.tolist() == [1, 1, 1, 2]
    assert tokenizer.decode([3, 0, 1]) == "é\ufffda".encode()


def test_a_capped_vocabulary_keeps_the_most_frequent():
    tokenizer = CharacterTokenizer.train([b"aabbbc", b"dd"], vocab_size=3)
    assert tokenizer.characters == "ab"
    assert tokenizer.vocab_size == 3


def test_cuts_move_back_to_the_start_of_a_character():
    # 1, 2, 3 and 4 bytes begin at 0, 1, 3 and 6.
    starts = [0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10]
    assert [character_start("aé€𝄞".encode(), near) for near in range(12)] == starts
    assert character_start(b"\x80" * 10, 7) == 7, "bytes that begin none are cut anywhere"


def test_ids_for_masks_are_known_by_their_usual_names():
    library = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]")
    )
    library.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    with pytest.raises(ConfigError, match=r"vocab.txt has no \[MASK\], which"):
        check_masking(SubwordTokenizer(library), "vocab.txt")
    content = SubwordTokenizer.train([b"a text of words"], vocab_size=270).serialize().decode()
    library = tokenizers.Tokenizer.from_str(content)
    first = library.get_vocab_size()
    library.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer = SubwordTokenizer(library)
    check_masking(tokenizer, "tokenizer.json")
    names = (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.mask_id)
    assert names == (first, first + 1, first + 2, first + 4)
    assert tokenizer.special_ids == (0, *range(first, first + 5))
    assert tokenizer.is_lossless
    assert not set(tokenizer.special_ids) & set(tokenizer.encode(b"<s> <mask></s>").tolist())


def test_blanks_are_seen_and_what_has_no_shape_is_escaped() -> None:
    tokenizer = with_names(ByteTokenizer(), ["[START]"])
    text = b"a b\n\xc3"
    ids = np.append(tokenizer.encode(text), tokenizer.added_ids["[START]"])
    assert show_tokens(ids, tokenizer) == ["a", "▁", "b", "\\n", "\\xc3", "[START]"]


def test_tokens_of_text_and_names_of_marks_are_told_apart(
    words: Tokenizer, stories: list[list[str]]
) -> None:
    text = stories[0][0]
    ids = words.encode(text.encode())
    shown = "".join(show_tokens(ids, words)).replace("##", "")
    assert shown.replace("▁", "").lower() == text.replace(" ", "").lower()
    assert words.sep_id is not None
    name = special_names(words)[words.sep_id]
    assert show_tokens(np.array([words.sep_id]), words) == [name]
    assert name in ("[SEP]", "</s>")


PROSE = (
    "It is a truth universally acknowledged, in 1813, "
    "that a single man's fortune (naïve, or £1,000) isn't his.\n" * 20
)

TRAINED = train_wordpiece([PROSE.encode()], vocab_size=150)

ODD = st.text(
    st.sampled_from("ab 's19,.(\n\t\r\u00a0\u3000\u0085\u2028\x1c\x1f\u200b\ufeffÉéσΣ\u0301漢𝄞"),
    max_size=60,
)

SMALL = (*SPECIALS, "[unused0]", "the", "un", "##aff", "##able", "a", "##s")


@pytest.fixture(scope="module")
def published(real_data):
    return load_tokenizer(real_data / "vocab" / "bert" / "vocab.txt")


def write(folder, pieces, **settings):
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return load_tokenizer(folder / "vocab.txt")


def library_ids(tokenizer, text):
    library = tokenizers.Tokenizer.from_str(tokenizer.serialize().decode())
    library.encode_special_tokens = True
    return library.encode(text, add_special_tokens=False).ids


def test_the_published_vocabulary_gives_the_ids_of_transformers(published, real_data):
    from transformers import BertTokenizer

    theirs = BertTokenizer.from_pretrained(real_data / "vocab" / "bert")
    found = sentences(real_data)
    assert len(found) > 1000
    rows = theirs(found, add_special_tokens=False, split_special_tokens=True).input_ids
    for sentence, ids in zip(found, rows, strict=True):
        assert published.encode(sentence.encode()).tolist() == ids, sentence


def test_the_published_vocabulary_gives_the_ids_of_the_release(published, real_data):
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

    release = BertTokenizerLegacy(str(real_data / "vocab" / "bert" / "vocab.txt"))
    for sentence in sentences(real_data):
        # The library leaves out what its tables of Unicode lack, and has one small sigma: as
        # transformers has now.
        known = "".join(each for each in sentence if unicodedata.category(each) not in ("Cn", "Co"))
        known = known.replace("Σ", "σ")
        words = release.wordpiece_tokenizer.tokenize(
            " ".join(release.basic_tokenizer.tokenize(known))
        )
        assert published.encode(known.encode()).tolist() == release.convert_tokens_to_ids(words), (
            known
        )


def test_the_published_vocabulary_has_its_ids(published, real_data):
    assert (published.pad_id, published.unk_id, published.cls_id) == (0, 100, 101)
    assert (published.sep_id, published.mask_id, published.vocab_size) == (102, 103, 30_522)
    # [unused0] to [unused98] are 1 to 99, [unused99] to [unused993] are 104 to 998.
    assert published.special_ids == tuple(range(999))
    assert published.end_id is None
    assert published.unk_id not in published.encode(b"x" * 100)
    assert published.encode(b"a " + b"x" * 101).tolist() == [1037, published.unk_id]
    text = "\n".join(sentences(real_data))
    assert published.encode(text.encode()).tolist() == library_ids(published, text)


def test_words_begin_with_what_does_not_continue_one(published):
    ids = published.encode(b"unaffable [MASK] don't")
    names = [published.names[id_] for id_ in ids]
    assert names == ["una", "##ffa", "##ble", "[", "mask", "]", "don", "'", "t"]
    assert published.starts_word(ids).tolist() == [not name.startswith("##") for name in names]
    assert published.starts_word(np.array([[0, 101], [102, 103]])).all()
    assert published.token_bytes[ids].tolist() == [3, 3, 3, 1, 4, 1, 3, 1, 1]


def test_trained_ids_have_the_special_ones_first():
    assert TRAINED.names[:9] == [*SPECIALS, "'", "(", ")", ","]
    assert TRAINED.special_ids == (0, 1, 2, 3, 4)
    names = [TRAINED.names[id_].removeprefix("##") for id_ in TRAINED.encode("Naïve".encode())]
    assert "".join(names) == "naive"
    assert TRAINED.decode(TRAINED.encode(b"a truth")) == b"a truth"
    lines = sorted(PROSE.encode().splitlines(), reverse=True)
    assert train_wordpiece(lines, vocab_size=150).serialize() == TRAINED.serialize()
    assert train_wordpiece([b"aaa"], vocab_size=1000).names == [*SPECIALS, "a", "##a", "aa", "aaa"]


@examples(250)
@given(ODD)
def test_words_apart_have_the_ids_of_the_whole(text):
    assert TRAINED.encode(text.encode()).tolist() == library_ids(TRAINED, text)


def test_capitals_in_a_vocabulary_keep_those_of_a_text(tmp_path):
    lowered = write(tmp_path, SMALL)
    assert lowered.encode("THE ÁS unaffable".encode()).tolist() == [6, 10, 11, 7, 8, 9]
    cased = write(tmp_path, (*SMALL, "The"))
    assert cased.encode(b"The the THE").tolist() == [12, 6, 1]
    told = write(tmp_path, (*SMALL, "The"), do_lower_case=True)
    assert told.encode(b"The the THE").tolist() == [6, 6, 6]
    assert lowered.special_ids == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "vocab.txt is empty"),
        (b"some\ntext\n", "none of its lines is .UNK."),
        (b"[UNK]\na\nb\na\n", "vocab.txt, line 4: 'a' is in line 2 too"),
        (b"[UNK]\n\xff\n", "vocab.txt, line 2: byte 0xff is not UTF-8"),
        (None, "cannot read the tokenizer .*vocab.txt: No such file"),
    ],
)
def test_a_damaged_vocabulary_is_refused_with_its_line(tmp_path, content, message):
    if content is not None:
        (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_tokenizer(tmp_path / "vocab.txt")


def test_settings_and_ends_of_lines_beside_a_vocabulary_are_read(tmp_path):
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(SMALL).encode() + b"\r\n")
    assert load_tokenizer(tmp_path).names == list(SMALL)
    with pytest.raises(DataError, match="tokenizer_config.json: do_lower_case = 'no'"):
        write(tmp_path, SMALL, do_lower_case="no")
