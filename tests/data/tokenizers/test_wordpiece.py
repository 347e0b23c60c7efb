"""WordPiece against transformers and the release, trained, and read from a vocabulary."""

import json
import unicodedata

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.data.tokenizers.wordpiece import SPECIALS, train_wordpiece
from sublayer.errors import DataError
from tests.breadth import examples
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
