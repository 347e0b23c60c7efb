"""SentencePiece's models of ALBERT, T5 and Marian have the ids and texts of the releases."""

import json
import unicodedata
import warnings
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

from sublayer.data.tokenizers.base import SPACE, find_sentinels
from sublayer.data.tokenizers.languages import BilingualTokenizer, LanguageRules
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.data.tokenizers.sentencepiece import UnigramTokenizer
from sublayer.data.tokenizers.settings import Normalization
from sublayer.errors import ConfigError, DataError
from tests.breadth import examples
from tests.data.sentencepiece_files import DE, EN, LINES, TEXTS, write_marian, write_t5
from tests.data.sentences import ODD, sentences
from tests.sentinels import encode_with_sentinels

PROSE = "It is a truth, in 1813, that a single man's fortune (naïve, or £1,000) isn't his.\n" * 20
TRAINED = UnigramTokenizer.train([PROSE.encode()], vocab_size=120)
CASED = PROSE + "The Cat sat on the Mat (naïve, £1,000); <extra_id_7> is text.\n" * 20
MARKED = train_tokenizer("unigram", [CASED.encode()], vocab_size=120, sentinels=9)
SPECIAL = st.sampled_from(["<extra_id_0>", "<extra_id_8>", "<extra_id_9>", "</s>", "<pad>"])
NAMES = [f"<extra_id_{number}>" for number in range(5)]


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


def test_alberts_model_gives_the_ids_of_the_release(real_data):
    def pieces(tokenizer, text):
        return [tokenizer.names[id_] for id_ in tokenizer.encode(text.encode())]

    model = real_data / "vocab" / "albert" / "spiece.model"
    albert, processor = load_tokenizer(model), SentencePieceProcessor(model_file=str(model))
    lines = sentences(real_data)
    expected = [released_ids(processor, line) for line in lines]
    assert [albert.encode(line.encode()).tolist() for line in lines] == expected
    # Lines are encoded one by one.
    assert albert.encode("\n".join(lines).encode()).tolist() == list(chain(*expected))
    ids = [getattr(albert, f"{name}_id") for name in ("pad", "unk", "cls", "sep", "mask", "end")]
    assert ids == [0, 1, 2, 3, 4, None] and albert.special_ids == (0, 1, 2, 3, 4)
    assert albert.normalization == Normalization(True, False, True)
    assert albert.decode([2, *albert.encode(b"a word"), 3]) == b"a word"
    # Text is lowered and stripped of accents; a comma after a digit stands alone.
    assert pieces(albert, "  Zoë\t\u00a0CAFÉ ") == pieces(albert, "zoe cafe")
    assert pieces(albert, "In 2018, 12,345.") == ["▁in", "▁2018", ",", "▁12", ",", "345", "."]
    undivided = UnigramTokenizer(albert.model, Normalization(divide_digit_commas=False))
    assert pieces(undivided, "In 2018, 12,345.") == ["▁in", "▁2018,", "▁12,", "345", "."]


def test_trained_ids_have_alberts_order_in_parts_too():
    first = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", *'()"-.', "–", "£", "€"]
    assert (TRAINED.names[:13], TRAINED.is_lossless) == (first, False)
    data = PROSE.encode()
    place = TRAINED.cut(data, 700)
    parts = UnigramTokenizer.train([data[:place], data[place:]], vocab_size=120)
    assert parts.serialize() == TRAINED.serialize()
    assert UnigramTokenizer.train([b"aaaa"], vocab_size=1000).names[13:] == ["aa", "a", "▁"]
    line = " ".join(f"unmistakable{number % 7}" for number in range(2000)).encode()
    assert UnigramTokenizer.train([line], vocab_size=60).encode(b"unmistakable3").size < 6


def test_rules_are_those_of_settings_or_of_pieces(tmp_path):
    (tmp_path / "spiece.model").write_bytes(TRAINED.model)
    assert load_tokenizer(tmp_path).normalization == Normalization()
    rules, settings = {"do_lower_case": False, "keep_accents": True}, "tokenizer_config.json"
    (tmp_path / settings).write_text(json.dumps(rules))
    assert load_tokenizer(tmp_path).normalization == Normalization(**rules)
    (tmp_path / settings).write_text("[]")
    with pytest.raises(DataError, match=settings):
        load_tokenizer(tmp_path)
    of = Normalization.of
    assert of(["▁the", "▁한국"]) == Normalization()
    assert of(["▁The"]).do_lower_case is False
    assert of(["▁é"]).keep_accents is True


@pytest.mark.parametrize("tokenizer", [TRAINED, MARKED], ids=["ALBERT", "T5"])
@examples(250)
@given(text=st.lists(st.one_of(ODD, SPECIAL), max_size=5).map("".join))
def test_decoding_gives_the_normalised_text(tokenizer, text):
    ids = tokenizer.encode(text.encode())
    assert not set(tokenizer.special_ids) - {tokenizer.unk_id} & set(ids.tolist())
    if tokenizer.unk_id not in ids:
        normal = " ".join(" ".join(tokenizer.normalization.lines(text)).split())
        normal = normal.translate({0x200B: " ", 0xFEFF: " "})  # spaces for SentencePiece
        words = unicodedata.normalize("NFKC", normal).split()
        assert tokenizer.decode(ids).decode() == " ".join(words)
        assert tokenizer.token_bytes[ids].sum() == len(tokenizer.decode(ids)) + bool(len(ids))


def test_a_sentinel_is_decoded_as_its_name():
    ids = encode_with_sentinels(MARKED, b"The <extra_id_0> sat on the <extra_id_1>")
    assert MARKED.decode([*ids, 1]) == b"The<extra_id_0> sat on the<extra_id_1>"
    assert MARKED.decode(ids[~np.isin(ids, MARKED.sentinel_ids)]) == b"The sat on the"
    assert find_sentinels({"<extra_id_1>": 4, "<extra_id_0>": 9, "<extra_id_3>": 5}) == (9, 4)
    assert find_sentinels({"<extra_id_1>": 4}) == ()


def check_t5(ours, theirs):
    assert len(theirs) == ours.vocab_size
    assert list(ours.sentinel_ids) == theirs.convert_tokens_to_ids(NAMES)
    assert (ours.pad_id, ours.sep_id) == (theirs.pad_token_id, theirs.eos_token_id)
    assert set(ours.sentinel_ids) <= set(ours.special_ids)
    for text in [*LINES, *TEXTS]:
        ids = encode_with_sentinels(ours, text.encode()).tolist()
        assert ids == theirs(text, add_special_tokens=False).input_ids, text
        if theirs.unk_token_id not in ids:
            assert ours.decode(ids).decode() == theirs.decode(ids), text
    # Text stays text.
    ids = ours.encode(b"a <extra_id_0> b<extra_id_3> </s> <pad> <unk>").tolist()
    assert not {*ours.sentinel_ids, 0, 1} & set(ids)


@pytest.mark.parametrize("rules, n_added", [
    ({}, 5), ({"user_defined_symbols": NAMES[::-1]}, 0),
    ({"user_defined_symbols": ["(", *NAMES]}, 0), ({"control_symbols": NAMES}, 0),
], ids=["added", "counted down", "counted up", "control"])  # fmt: skip
def test_t5s_files_have_the_ids_and_texts_of_transformers(tmp_path, rules, n_added):
    transformers = pytest.importorskip("transformers")
    folder = write_t5(tmp_path / "t5", **rules)
    theirs = transformers.T5Tokenizer.from_pretrained(folder, extra_ids=n_added)
    (folder / "config.json").write_text('{"model_type": "t5"}')
    ours = load_tokenizer(folder / "spiece.model", sentinels=5)
    check_t5(ours, theirs)
    without = load_tokenizer(folder / "spiece.model")
    assert ours.vocab_size - without.vocab_size == n_added == 5 - len(without.sentinel_ids)
    ours.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert (again.fingerprint, again.sentinel_ids) == (ours.fingerprint, ours.sentinel_ids)
    if n_added:  # a tokenizer.json has sentinels of its own; a folder is read from its original
        path = tmp_path / "fast" / "tokenizer.json"
        theirs.save_pretrained(path.parent)
        check_t5(load_tokenizer(path, sentinels=5), theirs)
        with pytest.raises(ConfigError, match=r"data.sentinels = 4 .* has 5"):
            load_tokenizer(path, sentinels=4)
        (folder / "tokenizer.json").write_bytes(path.read_bytes())
        assert isinstance(load_tokenizer(folder), UnigramTokenizer)


@pytest.mark.parametrize("kind, more, n", [
    ("T5", {"extra_ids": 7}, 7), ("T5", {}, 100), ("Llama", {"extra_ids": 7}, 0),
])  # fmt: skip
def test_settings_beside_a_model_count_its_sentinels(tmp_path, kind, more, n):
    folder = write_t5(tmp_path / "t5")
    settings = {"tokenizer_class": f"{kind}Tokenizer", **more}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    for path in (folder, folder / "spiece.model"):
        assert len(load_tokenizer(path).sentinel_ids) == n
    if n:
        with pytest.raises(ConfigError, match=f"data.sentinels = 9 .* has {n}"):
            load_tokenizer(folder / "spiece.model", sentinels=9)


@pytest.mark.parametrize("rules", [
    {}, {"model_type": "bpe"}, {"byte_fallback": True, "vocab_size": 350},
], ids=str)  # fmt: skip
def test_marians_files_have_the_ids_and_texts_of_transformers(tmp_path, rules):
    transformers = pytest.importorskip("transformers")
    folder = write_marian(tmp_path / "marian", **rules)
    vocabulary = load_tokenizer(folder)
    ours = BilingualTokenizer(vocabulary, LanguageRules("en"), LanguageRules("de"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = transformers.MarianTokenizer.from_pretrained(folder)
    ids = (theirs.eos_token_id, theirs.pad_token_id, theirs.unk_token_id)
    assert (ours.sep_id, ours.pad_id, ours.unk_id) == ids
    lines = [*EN, *DE, "A young dog!", "Ein  Hund\u00a0bedient\tBüsche", "日本 men", ">>de<< Two"]
    lines += [">>xx<<snow", ""]
    written = [[*ids, ours.sep_id] for ids in ours.encode_target(lines)]
    read = [[*ids, ours.sep_id] for ids in ours.encode_source(lines)]
    assert (theirs(lines).input_ids, theirs(text_target=lines).input_ids) == (read, written)
    known = [ids for ids in written if ours.unk_id not in ids]
    for ids in known:
        text = theirs.decode(ids, skip_special_tokens=True, use_source_tokenizer=False)
        assert ours.write(ids) == " ".join(text.split())
    assert len(known) < len(lines)
    vocabulary.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert (again.fingerprint, again.names) == (vocabulary.fingerprint, vocabulary.names)
