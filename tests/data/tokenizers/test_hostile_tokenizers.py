"""Files of tokenizers with anything wrong: each is read and works, or is refused in one line."""

import json
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublayer.data.tokenizers.language_rules import LanguageRules
from sublayer.data.tokenizers.named import train_tokenizer
from tests.at_length import at_length
from tests.data.hostile import (
    CORPUS,
    FORMS,
    altered,
    check_file,
    damaged,
    published,
    sentencepiece_model,
)
from tests.data.sentencepiece.t5 import t5_model

RANDOMS = st.randoms(use_true_random=False)
OWN = (
    "characters",
    "word-bpe",
    "gpt1-bpe",
    "unigram",
    "sentinels",
    "bilingual",
    "bilingual of the library",
    "pair",
)
CODES = "#version: 0.2\nt h\nth e</w>\nq u\no w\nd o\n"
DICTIONARY = "the 20\nqu@@ 9\no 3\nw@@ 2\n"


def check(name: str, data: bytes, **others: bytes) -> None:
    with TemporaryDirectory() as folder:
        for other, content in others.items():
            (Path(folder) / other.replace("_", ".")).write_bytes(content)
        (Path(folder) / name).write_bytes(data)
        check_file(Path(folder) / name)


def check_json(name: str, random: Random, content: Any) -> None:
    text = json.dumps(altered(random, content)).encode()
    check(name, damaged(random, text) if random.random() < 0.15 else text)


def own(kind: str) -> dict[str, Any]:
    if kind == "bilingual":
        sides = {side: LanguageRules(side[:2]).content() for side in ("source", "target")}
        return {**train("word-bpe"), "kind": kind, "vocabulary": train("word-bpe"), **sides}
    if kind == "bilingual of the library":
        return {**own("bilingual"), "vocabulary": published("t5")}
    if kind == "pair":
        model = train("unigram")
        packed = {name: model[name] for name in ("sha256", "model")}
        names = ["<unk>", "</s>", "<pad>", "\u2581the", "a"]
        return {
            **train("word-bpe"),
            "kind": "sentencepiece-pair",
            "names": names,
            "source": packed,
            "target": packed,
        }
    if kind == "sentinels":
        texts = [text.encode() for text in CORPUS]
        return train_tokenizer("unigram", texts, vocab_size=80, sentinels=5).content()
    return train(kind)


def train(kind: str) -> dict[str, Any]:
    size = None if kind == "characters" else 80
    return train_tokenizer(kind, [text.encode() for text in CORPUS], vocab_size=size).content()


def check_library(form: str, random: Random) -> None:
    check_json("tokenizer.json", random, published(form))


def check_model(random: Random) -> None:
    check("spiece.model", damaged(random, sentencepiece_model()))


@settings(max_examples=30)
@given(st.sampled_from(FORMS), RANDOMS)
@pytest.mark.slow
def test_a_tokenizer_json_is_read_or_refused(form: str, random: Random) -> None:
    check_library(form, random)


@pytest.mark.slow
@at_length(300)
@given(st.sampled_from(FORMS), RANDOMS)
def test_any_tokenizer_json_is_read_or_refused(form: str, random: Random) -> None:
    check_library(form, random)


@settings(max_examples=15)
@given(RANDOMS)
def test_a_sentencepiece_model_is_read_or_refused(random: Random) -> None:
    check_model(random)


@pytest.mark.slow
@at_length(150)
@given(RANDOMS)
def test_any_sentencepiece_model_is_read_or_refused(random: Random) -> None:
    check_model(random)


@settings(max_examples=15)
@given(RANDOMS)
def test_a_model_with_sentinels_is_read_or_refused(random: Random) -> None:
    model = t5_model(user_defined_symbols=[f"<extra_id_{number}>" for number in range(5)])
    beside = json.dumps(altered(random, {"tokenizer_class": "T5Tokenizer", "extra_ids": 5}))
    with TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer_config.json").write_text(beside)
        (Path(folder) / "spiece.model").write_bytes(damaged(random, model))
        check_file(Path(folder) / "spiece.model")


@settings(max_examples=60)
@given(st.sampled_from(OWN), RANDOMS)
def test_a_file_of_our_own_is_read_or_refused(kind: str, random: Random) -> None:
    check_json("tokenizer.json", random, OWN_CONTENTS[kind])


@settings(max_examples=100)
@given(RANDOMS)
def test_codes_and_their_dictionary_are_read_or_refused(random: Random) -> None:
    check("codes", damaged(random, CODES.encode()), dict_txt=damaged(random, DICTIONARY.encode()))
    check("codes", damaged(random, CODES.encode()))


@settings(max_examples=100)
@given(
    RANDOMS,
    st.sampled_from([b"{}", b'{"do_lower_case": 3}', b"[" * 100_000, b'{"do_lower_case": false}']),
)
def test_a_vocab_txt_is_read_or_refused(random: Random, settings_beside: bytes) -> None:
    pieces = "".join(f"{piece}\n" for piece in published("bert")["model"]["vocab"]).encode()
    check("vocab.txt", damaged(random, pieces), tokenizer_config_json=settings_beside)


@settings(max_examples=15)
@given(RANDOMS)
def test_gpt2s_original_files_are_read_or_refused(random: Random) -> None:
    model = published("gpt2")["model"]
    merges = "#version: 0.2\n" + "".join(" ".join(merge) + "\n" for merge in model["merges"])
    with TemporaryDirectory() as folder:
        vocabulary = json.dumps(altered(random, model["vocab"])).encode()
        (Path(folder) / "vocab.json").write_bytes(vocabulary)
        is_whole = random.random() < 0.5
        (Path(folder) / "merges.txt").write_bytes(
            merges.encode() if is_whole else damaged(random, merges.encode())
        )
        check_file(Path(folder))


@settings(max_examples=30)
@given(RANDOMS)
def test_gpt1s_original_files_are_read_or_refused(random: Random) -> None:
    content = own("gpt1-bpe")
    merges = "#version: 0.2\n" + "".join(" ".join(merge) + "\n" for merge in content["merges"])
    with TemporaryDirectory() as folder:
        vocabulary = json.dumps(altered(random, content["ids"])).encode()
        (Path(folder) / "encoder_bpe_9.json").write_bytes(vocabulary)
        is_whole = random.random() < 0.5
        (Path(folder) / "vocab_9.bpe").write_bytes(
            merges.encode() if is_whole else damaged(random, merges.encode())
        )
        check_file(Path(folder))


@settings(max_examples=15)
@given(RANDOMS)
def test_marians_files_are_read_or_refused(random: Random) -> None:
    names = {name: id_ for id_, name in enumerate(["<unk>", "</s>", "<pad>", "\u2581the", "a"])}
    with TemporaryDirectory() as folder:
        for name in ("source.spm", "target.spm"):
            (Path(folder) / name).write_bytes(sentencepiece_model())
        text = json.dumps(altered(random, names)).encode()
        (Path(folder) / "vocab.json").write_bytes(
            damaged(random, text) if random.random() < 0.3 else text
        )
        check_file(Path(folder))


@pytest.mark.parametrize(
    "data", [b"[" * 100_000, b'{"a":' * 100_000, b'{"model": ' + b"1" * 5000 + b"}", b"", b"\xff"]
)
@pytest.mark.parametrize("name", ["tokenizer.json", "spiece.model", "vocab.txt", "codes"])
def test_what_is_deep_or_long_is_refused(name: str, data: bytes) -> None:
    check(name, data)


OWN_CONTENTS = {kind: own(kind) for kind in OWN}
