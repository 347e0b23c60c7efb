"""Token ids of texts in several languages by each kind of tokenizer, and batches of recipes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers

import sublayer
from tests.golden.core import compare, digest, expect_names
from tests.golden.recipes import BLOCKS, ENCODER, RECIPES, SPANS, TASK, batches_of, settings_of
from tests.golden.texts import TEXTS

TRAINED = {
    "bytes": "",
    "characters": "",
    "bpe": "data.vocab_size=400",
    "unigram": "data.vocab_size=400",
    "wordpiece": "data.vocab_size=400",
    "moses-bpe": "data.merges=150",
    "word-bpe": "data.vocab_size=400",
    "gpt1-bpe": "data.merges=150",
}
"""Tokenizers that are trained on the texts, and the settings of each."""
LETTERS = "adehorstvyn.,'"


def write_library(folder: Path, text: Path) -> Path:
    """Write a byte-level BPE of the tokenizers library, as ``tokenizer.json``."""
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train([str(text)], vocab_size=400, show_progress=False, special_tokens=["</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def write_pair(folder: Path, text: Path) -> Path:
    """Write the same as GPT-2's ``vocab.json`` and ``merges.txt``."""
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train([str(text)], vocab_size=400, show_progress=False)
    tokenizer.save_model(str(folder))
    return folder / "vocab.json"


def write_sentencepiece(folder: Path, text: Path) -> Path:
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(folder / "spiece"),
        vocab_size=140,
        character_coverage=0.98,
        byte_fallback=False,
        num_threads=1,
        minloglevel=2,
    )
    return folder / "spiece.model"


def write_vocabulary(folder: Path, text: Path) -> Path:
    """Write BERT's ``vocab.txt``: special tokens, and the text's characters in and before words."""
    characters = sorted({each for each in text.read_text() if not each.isspace()})
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]"]
    pieces = [*special, *characters, *(f"##{each}" for each in characters), "the", "##ing"]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return folder / "vocab.txt"


def write_codes(folder: Path, text: Path) -> Path:
    """Write merges of subword-nmt."""
    lines = ["#version: 0.2", "t h", "th e</w>", "i n", "in g</w>", "ü b", "á c", "日 本"]
    (folder / "few.codes").write_text("\n".join(lines) + "\n")
    return folder / "few.codes"


def write_gpt1(folder: Path, text: Path) -> Path:
    """Write a vocabulary and its merges, named as GPT-1's were released."""
    pieces = ["<unk>", *LETTERS, *(f"{letter}</w>" for letter in LETTERS), "th", "the</w>"]
    vocabulary = {piece: number for number, piece in enumerate([*pieces, "'t</w>", "\n</w>"])}
    (folder / "encoder_bpe_40000.json").write_text(json.dumps(vocabulary))
    merges = ["#version: 0.2", "t h", "th e</w>", "' t</w>"]
    (folder / "vocab_40000.bpe").write_text("\n".join(merges) + "\n")
    return folder / "encoder_bpe_40000.json"


FILES: dict[str, tuple[Callable[[Path, Path], Path], str]] = {
    "tokenizer.json": (write_library, ""),
    "vocab.json, merges.txt": (write_pair, ""),
    "spiece.model with sentinels": (write_sentencepiece, "data.sentinels=8"),
    "vocab.txt": (write_vocabulary, ""),
    "few.codes": (write_codes, ""),
    "encoder_bpe_40000.json": (write_gpt1, ""),
}
"""Tokenizers that are read from files, what writes these, and the settings of each."""

BATCHES = {
    "windows that respect documents": (
        "gpt",
        "stories.txt",
        f"{BLOCKS} data.boundaries=respect data.windows=shuffled data.documents=blank-line",
    ),
    "a mixture of texts": ("gpt", "stories.txt pairs.tsv", BLOCKS),
    "pairs of single sentences": ("macaron-bert-base-released", "stories.txt", ENCODER),
    "masks of single tokens": (
        "albert-small",
        "stories.txt",
        f"{ENCODER} model.d_embed=8 objective.masking=token objective.sentence=nsp",
    ),
    "prefix noise": ("t5-mini", "stories.txt", f"{SPANS} objective.noise=prefix"),
    "translation by Moses' rules": (
        "multi30k-tiny",
        "pairs.tsv",
        f"{BLOCKS} data.vocab_size=110 optimizer.warmup_steps=2 train.batch_tokens=150",
    ),
    "pairs in random orders": (
        "albert-small",
        ".",
        f"{TASK} model.d_embed=8 data.tasks=rte objective.orders=random",
    ),
    "entailment as traversals": (
        "gpt1-small",
        ".",
        f"{TASK} data.tokenizer=unigram objective.format=traversal data.tasks=rte"
        " optimizer.warmup_steps=2",
    ),
}
"""Batches of recipes beside those that are trained."""


@pytest.fixture(scope="module")
def corpus(texts: Path) -> Path:
    """The stories, and all texts that a corpus may have but the longest."""
    path = texts / "corpus.txt"
    lines = [text for name, text in TEXTS.items() if name not in ("long line", "NULs and controls")]
    path.write_bytes("\n".join([(texts / "stories.txt").read_text(), *lines]).encode())
    return path


def ids_of(tokenizer: Any) -> dict[str, Any]:
    """Return the ids of each text, shortened, and what follows from them."""
    found: dict[str, Any] = {"vocabulary": tokenizer.vocab_size}
    for name, text in {**TEXTS, "all": "\n".join(TEXTS.values())}.items():
        ids = tokenizer.encode(text.encode()).tolist()
        first = " ".join(map(str, ids[:6]))
        back = digest(tokenizer.decode(ids))[:16]
        found[name] = f"{len(ids)}: {first} {digest(ids)[:16]}, decoded {back}"
    return found


@pytest.mark.parametrize("name", TRAINED)
def test_trained_tokenizers(name: str, corpus: Path) -> None:
    words = f"{BLOCKS} data.split=100/0/0 data.tokenizer={name} {TRAINED[name]}"
    tokenizer = sublayer.from_recipe("gpt", settings_of(words, corpus)).tokenizer
    compare("tokenizers", name, ids_of(tokenizer))


@pytest.mark.parametrize("name", FILES)
def test_tokenizers_of_files(name: str, corpus: Path, tmp_path: Path) -> None:
    write, settings = FILES[name]
    words = f"{BLOCKS} data.tokenizer={write(tmp_path, corpus)} {settings}"
    tokenizer = sublayer.from_recipe("gpt", settings_of(words, corpus)).tokenizer
    compare("tokenizers", name, ids_of(tokenizer))


@pytest.mark.parametrize("name", BATCHES)
def test_batches(name: str, texts: Path) -> None:
    recipe, paths, words = BATCHES[name]
    first, *others = paths.split()
    settings = settings_of(words, texts / first)
    if others:
        weights = ", ".join(f'"{texts / path}" = {n}.0' for n, path in enumerate(paths.split(), 1))
        settings[-1] = f"data.path={{{weights}}}"
    compare("batches", name, batches_of(recipe, settings))


def test_nothing_else_is_on_file() -> None:
    expect_names("tokenizers", [*TRAINED, *FILES])
    expect_names("batches", [*RECIPES, *BATCHES])
