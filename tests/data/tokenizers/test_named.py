import json

import pytest

from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.errors import ConfigError, DataError

TEXT = "a naïve text with an émigré\n".encode() * 5


@pytest.mark.parametrize(
    ("kind", "cls"),
    [("bytes", ByteTokenizer), ("characters", CharacterTokenizer), ("bpe", SubwordTokenizer)],
)
def test_each_kind_is_trained_saved_and_loaded(tmp_path, kind, cls):
    tokenizer = train_tokenizer(kind, [TEXT], vocab_size=None if kind == "bytes" else 270)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, cls)
    assert tokenizer.kind == loaded.kind == kind
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.encode(TEXT).tolist() == tokenizer.encode(TEXT).tolist()
    assert loaded.decode(loaded.encode(TEXT)) == TEXT
    assert (
        loaded.vocab_size
        == tokenizer.vocab_size
        == len(loaded.token_bytes)
        == len(loaded.token_characters)
    )


def test_different_tokenizers_have_different_fingerprints():
    found = [
        train_tokenizer("bytes", ()),
        train_tokenizer("characters", [b"ab"]),
        train_tokenizer("characters", [b"abc"]),
        train_tokenizer("bpe", [TEXT], vocab_size=260),
        train_tokenizer("bpe", [TEXT], vocab_size=261),
    ]
    assert len({tokenizer.fingerprint for tokenizer in found}) == 5


def test_bpe_has_8192_ids_by_default():
    words = " ".join(f"{number:x}" for number in range(40_000)).encode()
    assert train_tokenizer("bpe", [words]).vocab_size == 8192


def test_an_unknown_kind_is_refused():
    with pytest.raises(
        ConfigError,
        match="'words' cannot be trained; "
        "it is one of bytes, characters, bpe, unigram, wordpiece, moses-bpe",
    ):
        train_tokenizer("words", [TEXT])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the tokenizer .*tokenizer.json"),
        ("{", "the tokenizer .*tokenizer.json is not JSON"),
        ("[]", "holds no JSON object"),
        ("{}", "is not a tokenizer that the tokenizers library reads"),
        (
            '{"model": {"type": "BPE", "vocab": {}, "merges": ["a b"]}}',
            "is not a tokenizer that the tokenizers library",
        ),
        (
            '{"format": "sublayer-tokenizer", "version": 2, "kind": "bytes"}',
            "is of version 2, this program reads 1",
        ),
        (
            '{"format": "sublayer-tokenizer", "version": 1, "kind": "words"}',
            "is not a tokenizer of bytes or characters",
        ),
        (
            json.dumps(
                {
                    "format": "sublayer-tokenizer",
                    "version": 1,
                    "kind": "characters",
                    "characters": ["ab"],
                }
            ),
            "is not a tokenizer of bytes or characters",
        ),
        (
            json.dumps(
                {
                    "format": "sublayer-tokenizer",
                    "version": 1,
                    "kind": "characters",
                    "characters": ["a", "a"],
                }
            ),
            "is not a tokenizer of bytes or characters",
        ),
        (
            '{"format": "sublayer-tokenizer", "version": 1, '
            '"kind": "characters", "characters": ["\\ud800"]}',
            r"is not Unicode text \(a lone surrogate\)",
        ),
    ],
)
def test_what_is_not_a_tokenizer_is_named(tmp_path, content, message):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=message) as raised:
        load_tokenizer(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "moses-bpe"])
def test_vocabularies_for_masks_are_trained_saved_and_loaded(tmp_path, kind):
    tokenizer = train_tokenizer(kind, [TEXT], vocab_size=70)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path)
    assert type(loaded) is type(tokenizer)
    assert tokenizer.kind == loaded.kind == kind
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.encode(TEXT).tolist() == tokenizer.encode(TEXT).tolist()
    assert (
        loaded.vocab_size
        == tokenizer.vocab_size
        == len(loaded.token_bytes)
        == len(loaded.token_characters)
        <= 70
    )


def test_a_file_s_kind_goes_by_its_name(tmp_path):
    unigram = train_tokenizer("unigram", [TEXT], vocab_size=70)
    (tmp_path / "30k-clean.model").write_bytes(unigram.model)
    assert load_tokenizer(tmp_path / "30k-clean.model").fingerprint == unigram.fingerprint
    assert load_tokenizer(tmp_path).fingerprint == unigram.fingerprint
    (tmp_path / "other.model").write_bytes(unigram.model)
    with pytest.raises(
        DataError, match=r"has 30k-clean.model and other.model: name the file to read"
    ):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_text("[UNK]\na\n")
    assert load_tokenizer(tmp_path).kind == "wordpiece"


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has no tokenizer.json, nor vocab.json with merges.txt"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "kind",
    ["bytes", "characters", "bpe", "unigram", "wordpiece", "moses-bpe", "word-bpe", "gpt1-bpe"],
)
def test_an_id_that_no_vocabulary_has_is_seen(kind):
    tokenizer = train_tokenizer(
        kind, [TEXT], vocab_size=None if kind in ("bytes", "characters") else 300
    )
    known = int(tokenizer.encode(b"a")[-1])
    for unknown in (-1, tokenizer.vocab_size, 10**12):
        found = tokenizer.decode([unknown, known, unknown, unknown]).decode()
        assert found == f"\ufffd{tokenizer.decode([known]).decode()}\ufffd\ufffd"
    assert tokenizer.decode([]) == b""
