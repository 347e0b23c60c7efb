import json
import unicodedata

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.tokenizers.base import NotUtf8
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.data.tokenizers.wordpiece import SPECIALS, train_wordpiece
from sublayer.errors import ConfigError, DataError
from tests.data.sentences import sentences

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


def test_text_is_one_sequence_however_it_is_broken(published, real_data):
    text = "\n".join(sentences(real_data))
    assert published.encode(text.encode()).tolist() == library_ids(published, text)


def test_the_published_vocabulary_has_what_masks_need(published):
    assert (published.pad_id, published.unk_id, published.cls_id) == (0, 100, 101)
    assert (published.sep_id, published.mask_id, published.vocab_size) == (102, 103, 30_522)
    # [unused0] to [unused98] are 1 to 99, [unused99] to [unused993] are 104 to 998.
    assert published.special_ids == tuple(range(999))
    assert published.end_id is None
    assert published.token_bytes[:999].sum() == 0


def test_words_begin_with_what_does_not_continue_one(published):
    ids = published.encode(b"unaffable [MASK] don't")
    names = [published.names[id_] for id_ in ids]
    assert names == ["una", "##ffa", "##ble", "[", "mask", "]", "don", "'", "t"]
    assert published.starts_word(ids).tolist() == [not name.startswith("##") for name in names]
    assert published.starts_word(np.array([[0, 101], [102, 103]])).all()
    assert published.token_bytes[ids].tolist() == [3, 3, 3, 1, 4, 1, 3, 1, 1]


def test_a_word_of_more_than_100_characters_is_unknown(published):
    assert published.unk_id not in published.encode(b"x" * 100)
    assert published.encode(b"a " + b"x" * 101).tolist() == [1037, published.unk_id]


def test_trained_ids_have_the_special_ones_first():
    assert TRAINED.names[:5] == list(SPECIALS)
    assert TRAINED.special_ids == (0, 1, 2, 3, 4)
    assert TRAINED.kind == "wordpiece"
    assert 5 < TRAINED.vocab_size <= 150
    assert TRAINED.names[5:9] == ["'", "(", ")", ","]
    assert (
        "".join(TRAINED.names[id_].removeprefix("##") for id_ in TRAINED.encode("Naïve".encode()))
        == "naive"
    )


def test_training_again_and_in_another_order_gives_the_same_file():
    assert train_wordpiece([PROSE.encode()], vocab_size=150).serialize() == TRAINED.serialize()
    lines = sorted(PROSE.encode().splitlines(), reverse=True)
    assert train_wordpiece(lines, vocab_size=150).serialize() == TRAINED.serialize()


def test_a_short_text_holds_fewer_pieces_than_asked():
    assert train_wordpiece([b"aaa"], vocab_size=1000).names == [*SPECIALS, "a", "##a", "aa", "aaa"]


@pytest.mark.parametrize(
    ("text", "size", "error", "message"),
    [
        (b"abc", 10, ConfigError, "data.vocab_size = 10 is too small for wordpiece: 11 are"),
        (b" \n", 100, DataError, "there is no text to train a tokenizer on"),
        (b"a\n\xff", 100, NotUtf8, "line 2: byte 0xff"),
    ],
)
def test_what_cannot_be_trained_is_refused(text, size, error, message):
    with pytest.raises(error, match=message):
        train_wordpiece([text], vocab_size=size)


@given(ODD)
def test_words_apart_have_the_ids_of_the_whole(text):
    assert TRAINED.encode(text.encode()).tolist() == library_ids(TRAINED, text)


@given(ODD, st.integers(0, 200))
def test_a_cut_changes_no_id(text, near):
    data = text.encode()
    place = TRAINED.cut(data, min(near, len(data)))
    parts = np.concatenate([TRAINED.encode(data[:place]), TRAINED.encode(data[place:])])
    assert parts.tolist() == TRAINED.encode(data).tolist()
    assert place <= near


def test_saving_and_loading_changes_nothing(tmp_path):
    TRAINED.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path)
    assert loaded.fingerprint == TRAINED.fingerprint
    assert loaded.special_ids == TRAINED.special_ids
    assert loaded.encode(PROSE.encode()).tolist() == TRAINED.encode(PROSE.encode()).tolist()
    assert loaded.decode(loaded.encode(b"a truth")) == b"a truth"


def test_capitals_in_a_vocabulary_keep_those_of_a_text(tmp_path):
    lowered = write(tmp_path, SMALL)
    assert lowered.encode("THE ÁS unaffable".encode()).tolist() == [6, 10, 11, 7, 8, 9]
    cased = write(tmp_path, (*SMALL, "The"))
    assert cased.encode(b"The the THE").tolist() == [12, 6, 1]
    told = write(tmp_path, (*SMALL, "The"), do_lower_case=True)
    assert told.encode(b"The the THE").tolist() == [6, 6, 6]
    assert lowered.special_ids == (0, 1, 2, 3, 4, 5)


def test_ends_of_lines_of_both_kinds_are_read(tmp_path):
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(SMALL).encode() + b"\r\n")
    assert load_tokenizer(tmp_path).names == list(SMALL)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "vocab.txt is empty"),
        (b"some\ntext\n", "is not a tokenizer: none of its lines is .UNK."),
        (b"[UNK]\na\nb\na\n", "vocab.txt, line 4: 'a' is in line 2 too"),
        (b"[UNK]\n\xff\n", "vocab.txt, line 2: byte 0xff is not UTF-8"),
        (None, "cannot read the tokenizer .*vocab.txt: No such file"),
    ],
)
def test_a_damaged_vocabulary_is_named_with_its_line(tmp_path, content, message):
    if content is not None:
        (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(DataError, match=message) as raised:
        load_tokenizer(tmp_path / "vocab.txt")
    assert "\n" not in str(raised.value)


def test_settings_of_another_type_are_refused(tmp_path):
    with pytest.raises(
        DataError, match=r"tokenizer_config.json: do_lower_case = 'no' must be true or false"
    ):
        write(tmp_path, SMALL, do_lower_case="no")
