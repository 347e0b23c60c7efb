"""Every kind of tokenizer: trained, stored, cut, extended, and refused for the same reasons."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.tasks.marks import TRAVERSAL_NAMES
from sublayer.data.tokenizers.base import NotUtf8, Tokenizer, check_masking
from sublayer.data.tokenizers.extended import ExtendedTokenizer, with_names
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.errors import ConfigError, DataError
from tests.breadth import examples

TEXT = "a naïve text with an émigré, _start_ and (_classify_), isn't it? 1,000 or 20\n".encode() * 5
KINDS = {
    "bytes": {},
    "characters": {},
    "bpe": {"vocab_size": 300},
    "unigram": {"vocab_size": 80},
    "sentinels": {"vocab_size": 80, "sentinels": 9},
    "wordpiece": {"vocab_size": 80},
    "moses-bpe": {"vocab_size": 100},
    "word-bpe": {"vocab_size": 100},
    "gpt1-bpe": {"vocab_size": 100},
    "transformers": {"vocab_size": 100, "normalization": "transformers"},
}
NAMED = {"sentinels": "unigram", "transformers": "gpt1-bpe"}
MASKABLE = ("unigram", "wordpiece", "moses-bpe")
ODD = st.text(
    st.sampled_from("ab 's1.,(\n\t\r\u00a0\u3000\u0085\u2028\x1c\x1f\u200b\ufeffÉéσΣ\u0301漢𝄞“&"),
    max_size=60,
)
SPECIAL = b"<pad> </s> <s> [MASK] <mask> <cls> [CLS] <|endoftext|> <extra_id_0> <Lua heritage>"


def train(kind: str, texts=(TEXT,)) -> Tokenizer:
    return train_tokenizer(NAMED.get(kind, kind), texts, **KINDS[kind])


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(kind):
    return train(kind)


def test_a_file_gives_the_tokenizer_back(tmp_path, kind, tokenizer):
    tokenizer.save(tmp_path / "deep" / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "deep")
    assert type(loaded) is type(tokenizer)
    assert loaded.kind == tokenizer.kind == NAMED.get(kind, kind)
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.encode(TEXT).tolist() == tokenizer.encode(TEXT).tolist()
    for name in ("token_bytes", "token_characters"):
        counts = getattr(tokenizer, name).tolist()
        assert getattr(loaded, name).tolist() == counts
        assert len(counts) == loaded.vocab_size == tokenizer.vocab_size
    for name in ("special_ids", "sentinel_ids", "unk_id", "pad_id", "end_id", "is_lossless"):
        assert getattr(loaded, name) == getattr(tokenizer, name)
    assert tokenizer.vocab_size <= KINDS[kind].get("vocab_size", 256)
    assert train(kind).serialize() == tokenizer.serialize()


def test_tokenizers_that_differ_have_other_fingerprints():
    tokenizers = [train(kind) for kind in KINDS]
    tokenizers += [train("characters", [b"ab"]), with_names(tokenizers[0], ("_other_",))]
    tokenizers += [with_names(tokenizers[0], ("_start_",)), train("bpe", [b"ab ab"])]
    assert len({tokenizer.fingerprint for tokenizer in tokenizers}) == len(tokenizers)


@examples(200)
@given(text=ODD, near=st.integers(0, 200))
def test_a_cut_changes_no_id_and_several_texts_are_encoded_as_each(tokenizer, text, near):
    data = text.encode()
    place = tokenizer.cut(data, min(near, len(data)))
    assert place <= near
    texts = [data[:place], data[place:], b"", data]
    ids = [tokenizer.encode(part).tolist() for part in texts]
    assert ids[0] + ids[1] == ids[3]
    assert [several.tolist() for several in tokenizer.encode_many(texts)] == ids
    if tokenizer.is_lossless and tokenizer.unk_id not in ids[3]:
        assert tokenizer.decode(ids[3]) == data
        assert tokenizer.token_bytes[ids[3]].sum() == len(data)
        assert tokenizer.token_characters[ids[3]].sum() == len(text)


def test_special_ids_stand_for_no_text_and_no_text_has_them(kind, tokenizer):
    special = tokenizer.special_ids
    assert list(special) == sorted(set(special))
    # A character that is unknown has a byte at least.
    assert tokenizer.token_bytes[list(special)].sum() == (kind == "characters")
    assert not set(special) - {tokenizer.unk_id} & set(tokenizer.encode(SPECIAL).tolist())
    silent = set(special) - {tokenizer.unk_id, *tokenizer.sentinel_ids}
    assert tokenizer.decode(sorted(silent)) == b""


def test_an_id_beyond_the_vocabulary_is_decoded_as_lacking(tokenizer):
    known = int(tokenizer.encode(b"a")[-1])
    for unknown in (-1, tokenizer.vocab_size, 10**12):
        text = tokenizer.decode([unknown, known, unknown, unknown]).decode()
        assert text == f"\ufffd{tokenizer.decode([known]).decode()}\ufffd\ufffd"
    assert tokenizer.decode([]) == b""


def test_added_names_have_the_ids_behind_the_last(tmp_path, tokenizer):
    extended = with_names(tokenizer, TRAVERSAL_NAMES)
    first = tokenizer.vocab_size
    added = range(first, first + 3)
    assert extended.vocab_size == first + 3
    assert extended.added_ids == dict(zip(TRAVERSAL_NAMES, added, strict=True))
    for name in ("kind", "unk_id", "pad_id", "cls_id", "sep_id", "mask_id", "end_id"):
        assert getattr(extended, name) == getattr(tokenizer, name)
    assert extended.is_lossless == tokenizer.is_lossless
    assert extended.special_ids == (*tokenizer.special_ids, *added)
    assert len(extended.token_bytes) == len(extended.token_characters) == first + 3
    assert not extended.token_bytes[first:].any()
    ids = extended.encode(TEXT)
    assert ids.tolist() == tokenizer.encode(TEXT).tolist()
    assert [part.tolist() for part in extended.encode_many([TEXT, b""])] == [ids.tolist(), []]
    marked = np.array([first, *ids[:4], first + 1, *ids[4:], first + 2])
    assert extended.decode(marked) == tokenizer.decode(ids)
    assert extended.cut(TEXT, 300) == tokenizer.cut(TEXT, 300)
    if tokenizer.has_words:
        starts = [*tokenizer.starts_word(ids[:6]).tolist(), True, True, True]
        assert extended.starts_word(np.array([*ids[:6], *added])).tolist() == starts
    extended.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, ExtendedTokenizer)
    assert (loaded.added_ids, loaded.fingerprint) == (extended.added_ids, extended.fingerprint)
    # Names that are there are not added again.
    both = with_names(with_names(tokenizer, TRAVERSAL_NAMES[:2]), TRAVERSAL_NAMES)
    assert both.added_ids == extended.added_ids
    assert with_names(both, TRAVERSAL_NAMES) is both


@pytest.mark.parametrize("name", MASKABLE)
def test_vocabularies_for_masks_have_their_ids_and_words(name):
    tokenizer = train(name)
    check_masking(tokenizer, "data.tokenizer")
    needed = [getattr(tokenizer, f"{name}_id") for name in ("pad", "cls", "sep", "mask", "unk")]
    assert len(set(needed)) == 5 and set(needed) <= set(tokenizer.special_ids)
    starts = tokenizer.starts_word(tokenizer.encode(b"a text with an it\n"))
    assert starts.dtype == np.bool_ and starts.sum() == 5


@pytest.mark.parametrize("name", ["bytes", "characters", "bpe"])
def test_vocabularies_without_masks_are_refused(name):
    tokenizer = train(name)
    with pytest.raises(ConfigError, match=r"it has no \[PAD\], no \[CLS\], no \[SEP\], no \[MAS"):
        check_masking(tokenizer, "it")
    assert not tokenizer.has_words
    with pytest.raises(ConfigError, match="does not show where words begin"):
        tokenizer.starts_word(np.array([1]))


@pytest.mark.parametrize("name", [name for name in KINDS if name not in ("bytes", "bpe")])
def test_the_first_bad_byte_and_a_text_without_words_are_refused(name):
    tokenizer = train(name)
    for use in (tokenizer.encode, lambda text: train(name, [text])):
        with pytest.raises(NotUtf8, match="line 3: byte 0xff is not UTF-8") as refused:
            use(b"a\nb\nab\xff\xfe")
        assert refused.value.position == 6
    with pytest.raises(NotUtf8, match="byte 0xff"):
        train(name, [b"some words\n" * 50, b"more\n\xff"])
    if name != "characters":
        with pytest.raises(DataError, match="there is no text to train a tokenizer on"):
            train(name, [b" \n\n"])


@pytest.mark.parametrize(
    ("name", "size", "least"),
    [
        ("bpe", 256, "257"),
        ("unigram", 10, "unigram"),
        ("wordpiece", 10, "11 are"),
        ("moses-bpe", 11, "12 are"),
        ("word-bpe", 9, "10 are"),
        ("gpt1-bpe", 7, "8 are"),
    ],
)
def test_a_size_below_characters_and_special_ids_is_refused(name, size, least):
    with pytest.raises(ConfigError, match=f"data.vocab_size = {size} is too small for .*{least}"):
        train_tokenizer(name, [b"abc"], vocab_size=size)


def test_the_default_size_is_the_published_one():
    words = " ".join(f"{number:x}" for number in range(40_000)).encode()
    assert train_tokenizer("bpe", [words]).vocab_size == 8192


def test_unknown_kinds_are_refused():
    with pytest.raises(ConfigError, match="'words' cannot be trained; it is one of bytes, "):
        train_tokenizer("words", [TEXT])
    with pytest.raises(ConfigError, match="data.normalization = published needs data.tokenizer"):
        train_tokenizer("bpe", [TEXT], normalization="published")


OWN = {"format": "sublayer-tokenizer", "version": 1}
CHARACTERS = {**OWN, "kind": "characters"}
EXTENDED = {**with_names(train("characters"), TRAVERSAL_NAMES).content()}
MOSES = train("moses-bpe").content()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the tokenizer .*tokenizer.json"),
        ("{", "the tokenizer .*tokenizer.json is not JSON"),
        ([], "holds no JSON object"),
        ({**OWN, "version": 2, "kind": "bytes"}, "is of version 2, this program reads 1"),
        ({**OWN, "kind": "words"}, "is not a tokenizer of bytes or characters"),
        ({**CHARACTERS, "characters": ["ab"]}, "is not a tokenizer of bytes or characters"),
        ({**CHARACTERS, "characters": ["a", "a"]}, "is not a tokenizer of bytes or characters"),
        ({**CHARACTERS, "characters": ["\ud800"]}, r"is not Unicode text \(a lone surrogate\)"),
        ({**EXTENDED, "names": ["a", "a"]}, "tokenizer.json"),
        ({**EXTENDED, "names": ["a", 3]}, "tokenizer.json"),
        ({**EXTENDED, "vocabulary": None}, "its vocabulary is missing"),
        ({**MOSES, "pieces": None}, "pieces or merges are missing"),
        ({**MOSES, "pieces": ["a", "a"], "merges": []}, "merges do not make its pieces"),
        ({**MOSES, "pieces": ["a"], "merges": [["a", "b"]]}, "merges do not make its pieces"),
        ({**MOSES, "merges": [["a"]]}, "pieces or merges are damaged"),
        ({**MOSES, "pieces": ["a\n"], "merges": []}, "has an end of line"),
        ({**MOSES, "codes": "0.3"}, "codes = '0.3'"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, content, message):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(DataError, match=message) as refused:
        load_tokenizer(path)
    assert "\n" not in str(refused.value)


def test_the_file_of_a_folder_is_found_by_its_name(tmp_path):
    with pytest.raises(DataError, match=r"has no tokenizer.json, nor vocab.json with merges.txt"):
        load_tokenizer(tmp_path)
    unigram = train("unigram")
    (tmp_path / "30k-clean.model").write_bytes(unigram.model)
    for path in (tmp_path, tmp_path / "30k-clean.model"):
        assert load_tokenizer(path).fingerprint == unigram.fingerprint
    (tmp_path / "other.model").write_bytes(unigram.model)
    with pytest.raises(DataError, match="has 30k-clean.model and other.model: name the file"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_text("[UNK]\na\n")
    assert load_tokenizer(tmp_path).kind == "wordpiece"
