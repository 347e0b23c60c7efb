"""T5's and Marian's published files have the ids and texts of transformers' classes."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from sublayer.data.sentencepiece.marian import PairedModels
from sublayer.data.sentencepiece.model_file import parse_model
from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.data.tokenizers.language_rules import LanguageRules
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.errors import ConfigError, DataError
from tests.data.sentencepiece.marian import DE, EN, write_marian
from tests.data.sentencepiece.t5 import LINES, TEXTS, t5_model, write_t5
from tests.sentinels import encode_with_sentinels

NAMES = [f"<extra_id_{number}>" for number in range(5)]

INSIDE = [
    {"user_defined_symbols": NAMES[::-1]},
    {"user_defined_symbols": ["(", *NAMES]},
    {"control_symbols": NAMES},
]


def transformers_of(folder: Path, n_sentinels: int) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.T5Tokenizer.from_pretrained(folder, extra_ids=n_sentinels)


def check_equal(ours: Tokenizer, theirs: Any) -> None:
    assert len(theirs) == ours.vocab_size
    assert list(ours.sentinel_ids) == theirs.convert_tokens_to_ids(NAMES)
    assert (ours.pad_id, ours.sep_id) == (theirs.pad_token_id, theirs.eos_token_id)
    assert set(ours.sentinel_ids) <= set(ours.special_ids)
    for text in [*LINES, *TEXTS]:
        ids = encode_with_sentinels(ours, text.encode()).tolist()
        assert ids == theirs(text, add_special_tokens=False).input_ids, text
        if theirs.unk_token_id not in ids:
            assert ours.decode(ids).decode() == theirs.decode(ids), text


def check_text_stays_text(ours: Tokenizer) -> None:
    ids = ours.encode(b"a <extra_id_0> b<extra_id_3> </s> <pad> <unk>").tolist()
    assert not {*ours.sentinel_ids, 0, 1} & set(ids)
    assert len(ids) > 20  # most characters are pieces of their own


def test_sentinels_are_added_to_a_model_that_has_none(tmp_path: Path) -> None:
    folder = write_t5(tmp_path / "t5")
    ours = load_tokenizer(folder / "spiece.model", sentinels=5)
    assert isinstance(ours, UnigramTokenizer)
    assert ours.unk_id == 2
    last = ours.vocab_size - 1
    assert ours.sentinel_ids == (last, last - 1, last - 2, last - 3, last - 4)
    theirs = transformers_of(folder, 5)
    check_equal(ours, theirs)
    check_text_stays_text(ours)
    without = load_tokenizer(folder / "spiece.model")
    assert (without.vocab_size, without.sentinel_ids) == (ours.vocab_size - 5, ())


@pytest.mark.parametrize("rules", INSIDE, ids=["counted down", "counted up", "control"])
def test_sentinels_that_are_pieces_keep_their_ids(tmp_path: Path, rules: dict[str, Any]) -> None:
    folder = write_t5(tmp_path / "t5", **rules)
    ours = load_tokenizer(folder / "spiece.model", sentinels=5)
    check_equal(ours, transformers_of(folder, 0))
    check_text_stays_text(ours)
    ours.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert again.sentinel_ids == ours.sentinel_ids
    assert again.encode(TEXTS[0].encode()).tolist() == ours.encode(TEXTS[0].encode()).tolist()
    assert isinstance(ours, UnigramTokenizer)
    assert ours.model == (folder / "spiece.model").read_bytes()
    with pytest.raises(ConfigError, match="data.sentinels = 4 contradicts .*, which has 5: give 0"):
        load_tokenizer(folder / "spiece.model", sentinels=4)


def test_a_piece_of_text_with_the_name_of_a_sentinel_is_none(tmp_path: Path) -> None:
    content = parse_model(t5_model())
    place = [piece.piece for piece in content.pieces].index("e")
    content.pieces[place].piece = "<extra_id_0>"
    (tmp_path / "spiece.model").write_bytes(content.SerializeToString())
    assert load_tokenizer(tmp_path / "spiece.model").sentinel_ids == ()
    ours = load_tokenizer(tmp_path / "spiece.model", sentinels=2)
    assert ours.sentinel_ids[0] == ours.vocab_size - 1
    ids = ours.encode(b"a<extra_id_0>")
    assert place in ids
    assert not set(ours.sentinel_ids) & set(ids.tolist())
    assert ours.decode(ids) == b"a<extra_id_0>"


def test_a_tokenizer_json_has_its_own_sentinels(tmp_path: Path) -> None:
    folder = write_t5(tmp_path / "t5")
    theirs = transformers_of(folder, 5)
    theirs.save_pretrained(tmp_path / "fast")
    path = tmp_path / "fast" / "tokenizer.json"
    ours = load_tokenizer(path)
    assert isinstance(ours, SubwordTokenizer)
    assert ours.end_id is None  # what divides documents elsewhere
    check_equal(ours, theirs)
    check_text_stays_text(ours)
    original = load_tokenizer(folder / "spiece.model", sentinels=5)
    for text in [*LINES, *TEXTS, "</s> <unk> <extra_id_0>"]:
        assert ours.encode(text.encode()).tolist() == original.encode(text.encode()).tolist(), text
    assert load_tokenizer(path, sentinels=5).sentinel_ids
    with pytest.raises(ConfigError, match="data.sentinels = 100 contradicts .*, which has 5"):
        load_tokenizer(path, sentinels=100)
    # A folder is read from its original.
    (folder / "tokenizer.json").write_bytes(path.read_bytes())
    tokenizer = load_tokenizer(folder)
    assert isinstance(tokenizer, UnigramTokenizer) and len(tokenizer.sentinel_ids) == 5


def test_byte_level_files_have_sentinels_too(tmp_path: Path) -> None:
    content = train_tokenizer("bpe", [b"the dog"] * 9, vocab_size=260).content()
    kept = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    for number, name in enumerate(NAMES):
        content["added_tokens"].append(
            {"id": 900 + number, "content": name, "special": True, **kept}
        )
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    ours = load_tokenizer(tmp_path / "tokenizer.json")
    assert ours.is_lossless
    assert len(ours.sentinel_ids) == 5
    ids = encode_with_sentinels(ours, b"the <extra_id_1>\xff dog")
    assert ours.sentinel_ids[1] in ids
    assert ours.decode(ids) == b"the <extra_id_1>\xff dog"
    assert ours.token_bytes[ids].sum() == len(b"the \xff dog")
    assert ours.sentinel_ids[0] not in ours.encode(b"a <extra_id_0>")


@pytest.mark.parametrize(
    ("settings", "n_sentinels"),
    [
        ({"tokenizer_class": "T5Tokenizer", "extra_ids": 7}, 7),
        ({"tokenizer_class": "T5TokenizerFast"}, 100),
        ({"tokenizer_class": "T5Tokenizer", "extra_ids": 0}, 0),
        ({"tokenizer_class": "LlamaTokenizer", "extra_ids": 7}, 0),
        ({"tokenizer_class": "T5Tokenizer", "extra_ids": True}, None),
        ({"tokenizer_class": "T5Tokenizer", "extra_ids": -1}, None),
        ({"tokenizer_class": "T5Tokenizer", "extra_ids": 10**30}, None),
    ],
)
def test_settings_beside_a_model_count_its_sentinels(
    tmp_path: Path, settings: dict[str, Any], n_sentinels: int | None
) -> None:
    folder = write_t5(tmp_path / "t5")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    for path in (folder, folder / "spiece.model"):
        if n_sentinels is None:
            with pytest.raises(DataError, match="tokenizer_config.json: extra_ids = "):
                load_tokenizer(path)
        else:
            assert len(load_tokenizer(path).sentinel_ids) == n_sentinels
    if n_sentinels:
        with pytest.raises(ConfigError, match=f"data.sentinels = 9 .* which has {n_sentinels}"):
            load_tokenizer(folder / "spiece.model", sentinels=9)


def test_sentinels_are_added_to_a_sentencepiece_model_alone(tmp_path: Path) -> None:
    train_tokenizer("bpe", [b"the dog"] * 9, vocab_size=260).save(tmp_path / "tokenizer.json")
    with pytest.raises(ConfigError, match="data.sentinels = 5 are added to a SentencePiece .mo"):
        load_tokenizer(tmp_path / "tokenizer.json", sentinels=5)


NEW = [
    "A young dog operates outside the machine!",
    "Ein  Hund\u00a0bedient\tBüsche",
    "日本 men",
    ">>de<< Two dogs",
    ">>xx<<snow",
    ">> men",
    "½ ﬁne",
    "",
]


@pytest.mark.parametrize(
    "rules", [{}, {"model_type": "bpe"}, {"byte_fallback": True, "vocab_size": 350}], ids=str
)
def test_ids_and_texts_are_those_of_transformers(tmp_path: Path, rules: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    folder = write_marian(tmp_path / "marian", **rules)
    vocabulary = load_tokenizer(folder)
    assert isinstance(vocabulary, PairedModels)
    ours = BilingualTokenizer(vocabulary, LanguageRules("en"), LanguageRules("de"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = transformers.MarianTokenizer.from_pretrained(folder)
    assert (ours.sep_id, ours.pad_id, ours.unk_id) == (
        theirs.eos_token_id,
        theirs.pad_token_id,
        theirs.unk_token_id,
    )
    lines = [*EN, *DE, *NEW]
    for line, ids in zip(lines, ours.encode_source(lines), strict=True):
        assert theirs(line).input_ids == [*ids, ours.sep_id], line
    n_unknown = 0
    for line, ids in zip(lines, ours.encode_target(lines), strict=True):
        assert theirs(text_target=line).input_ids == [*ids, ours.sep_id], line
        n_unknown += int((ids == ours.unk_id).sum())
        if ours.unk_id not in ids:
            text = theirs.decode(
                [*ids, ours.sep_id], skip_special_tokens=True, use_source_tokenizer=False
            )
            assert ours.write([*ids, ours.sep_id]) == " ".join(text.split()), line
    assert n_unknown > 0


def test_marians_files_come_back_as_they_were(tmp_path: Path) -> None:
    first = PairedModels.read(write_marian(tmp_path / "marian"))
    first.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert isinstance(again, PairedModels)
    assert (again.fingerprint, again.names) == (first.fingerprint, first.names)
    assert again.source_model == first.source_model
    assert again.target_model == first.target_model


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("source.spm", "no model", r"marian: source.spm is not a SentencePiece model"),
        ("vocab.json", "{", r"vocab.json is not JSON"),
        ("vocab.json", '{"a": "b"}', r"vocab.json: the id of 'a' is b, which is no id"),
        ("vocab.json", '{"<unk>": 0, "a": 2}', r"vocab.json: the ids of its 2 pieces are not 0"),
        ("vocab.json", '{"a": 0}', r"marian: the vocabulary has no <unk>"),
        ("tokenizer.json", {"names": [1]}, "its table of pieces is damaged"),
        ("tokenizer.json", {"source": None}, "model does not have its checksum"),
        ("tokenizer.json", {"target": {"model": "!"}}, "model is not base64"),
    ],
)
def test_marians_damaged_files_are_refused(
    tmp_path: Path, file: str, content: Any, message: str
) -> None:
    folder = write_marian(tmp_path / "marian")
    path = folder / file
    if isinstance(content, dict):
        whole = PairedModels.read(folder).content()
        content = json.dumps({**whole, **content})
        path = folder = tmp_path / file
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        load_tokenizer(folder)
