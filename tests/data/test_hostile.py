"""Files of tokenizers with anything wrong: each is read and works, or is refused in one line."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.tokenizers.language_rules import LanguageRules
from sublayer.data.tokenizers.named import train_tokenizer
from tests.breadth import examples
from tests.data.hostile import (
    CORPUS,
    FORMS,
    altered,
    check_file,
    damaged,
    published,
    sentencepiece_model,
)
from tests.data.sentencepiece_files import t5_model

NAMES = ["<unk>", "</s>", "<pad>", "\u2581the", "a"]


@cache
def own(kind):
    """The content of a file of ours."""
    if kind == "bilingual":
        sides = {side: LanguageRules(side[:2]).content() for side in ("source", "target")}
        return {**own("word-bpe"), "kind": kind, "vocabulary": own("word-bpe"), **sides}
    if kind == "pair":
        model = {name: own("unigram")[name] for name in ("sha256", "model")}
        both = {"names": NAMES, "source": model, "target": model}
        return {**own("word-bpe"), "kind": "sentencepiece-pair", **both}
    more = {} if kind == "characters" else {"vocab_size": 80}
    if kind == "sentinels":
        kind, more = "unigram", {**more, "sentinels": 5}
    return train_tokenizer(kind, [text.encode() for text in CORPUS], **more).content()


def written(random, content, share=0.15):
    text = json.dumps(altered(random, content)).encode()
    return damaged(random, text) if random.random() < share else text


def gpt(random):
    """Files of GPT-2 or GPT-1."""
    if random.random() < 0.5:
        model = published("gpt2")["model"]
        ids, merges, names = model["vocab"], model["merges"], ("vocab.json", "merges.txt")
    else:
        content = own("gpt1-bpe")
        ids, merges = content["ids"], content["merges"]
        names = ("encoder_bpe_9.json", "vocab_9.bpe")
    lines = ("#version: 0.2\n" + "".join(" ".join(merge) + "\n" for merge in merges)).encode()
    lines = lines if random.random() < 0.5 else damaged(random, lines)
    return {names[0]: written(random, ids, 0), names[1]: lines}


def codes(random):
    found = {"codes": damaged(random, b"#version: 0.2\nt h\nth e</w>\nq u\no w\nd o\n")}
    if random.random() < 0.5:
        found["dict.txt"] = damaged(random, b"the 20\nqu@@ 9\no 3\nw@@ 2\n")
    return found


def marian(random):
    ids = written(random, {name: id_ for id_, name in enumerate(NAMES)}, 0.3)
    models = dict.fromkeys(("source.spm", "target.spm"), sentencepiece_model())
    return {**models, "vocab.json": ids}


def with_sentinels(random):
    model = t5_model(user_defined_symbols=[f"<extra_id_{number}>" for number in range(5)])
    beside = written(random, {"tokenizer_class": "T5Tokenizer", "extra_ids": 5}, 0)
    return {"spiece.model": damaged(random, model), "tokenizer_config.json": beside}


def wordpiece(random):
    pieces = "".join(f"{piece}\n" for piece in published("bert")["model"]["vocab"]).encode()
    settings = [b"{}", b'{"do_lower_case": 3}', b"[" * 100_000, b'{"do_lower_case": false}']
    return {"vocab.txt": damaged(random, pieces), "tokenizer_config.json": random.choice(settings)}


KINDS = ("characters", "word-bpe", "gpt1-bpe", "unigram", "sentinels", "bilingual", "pair")


MAKERS = {
    "library": lambda random: {"tokenizer.json": written(random, published(random.choice(FORMS)))},
    "own": lambda random: {"tokenizer.json": written(random, own(random.choice(KINDS)))},
    "sentinels": with_sentinels,
    "codes": codes,
    "wordpiece": wordpiece,
    "gpt": gpt,
    "marian": marian,
}


def check(files):
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        check_file(Path(folder) / "codes" if "codes" in files else Path(folder))


@pytest.mark.parametrize("kind", MAKERS)
@examples(75)
@given(random=st.randoms(use_true_random=False))
def test_files_with_anything_wrong_are_read_or_refused(kind, random):
    check(MAKERS[kind](random))


@pytest.mark.parametrize("name", ["tokenizer.json", "spiece.model", "vocab.txt", "codes"])
def test_deep_and_empty_files_are_refused(name):
    deep = [b"[" * 100_000, b'{"a":' * 100_000, b'{"model": ' + b"1" * 5000 + b"}"]
    for data in (*deep, b"", b"\xff"):
        check({name: data})
