"""Translators of other vocabularies: as transformers translates, and text as it is written."""

import io
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceTrainer

from tests.translators import sentences, train_translator, write_pair

WORDS = (
    ("A", "cat", "dog", "sees", "THE", "and", "bird"),
    ("Ein", "Kätzchen", "Hündchen", "hört", "das", "und", "Vögelchen"),
)
EN, DE = ([f"{line} ." for line in sentences(words, 280, longest=5)] for words in WORDS)
MARKED_EN, MARKED_DE = (
    [line + mark for line, mark in zip(sentences(words, 300, longest=4), cycle("!."), strict=False)]
    for words in WORDS
)
ORDERS = {
    "pre": {},
    "post": {
        "model__norm_order": "post",
        "model__sinusoids": "marian",
        "model__first_position": 0,
        "model__decoder_start": "pad",
    },
}


@pytest.fixture(scope="module", params=ORDERS)
def exchanged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translator")
    write_pair(folder, EN, DE)
    return train_translator(folder, data__vocab_size=80, **ORDERS[request.param])


def translate_elsewhere(folder: Path, lines: list[str]) -> list[str]:
    """Translate lines by transformers, greedily."""
    import transformers

    model: Any = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(lines, return_tensors="pt", padding=True)
    limits = {"max_new_tokens": 21, "min_new_tokens": 1}
    ids = model.generate(**inputs, num_beams=1, do_sample=False, **limits)
    texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
    return [" ".join(text.split()) for text in texts]


def test_a_translator_writes_the_same_words_in_transformers_and_back(
    sublayer, translate, exchanged, tmp_path
):
    there, back = tmp_path / "out", tmp_path / "back"

    def translated(model: Path) -> list[str]:
        text = "".join(f"{line}\n" for line in EN[:40]).encode()
        return translate(model, text, "--beam", 1, "--longest-more", 20).shown().splitlines()

    exported = sublayer("export", exchanged, "--to", "huggingface", there).shown()
    assert exported.startswith(f"exported: {there}, with its tokenizer\n")
    ours = translated(exchanged)
    assert translate_elsewhere(there, EN[:40]) == ours
    pairs = zip(ours, DE[:40], strict=True)
    assert sum(line == target.lower() for line, target in pairs) > 20
    out = sublayer("import", "huggingface", there, "--out", back).out
    assert out.startswith(f"model: {back}, with its tokenizer\n")
    assert translated(back) == ours
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (there / name).unlink()
    out = sublayer("import", "huggingface", there, "--out", tmp_path / "bare").out
    assert out.startswith(f"model: {tmp_path / 'bare'}, without a tokenizer: the folder has none\n")
    refusal = sublayer("translate", tmp_path / "bare").refusal()
    assert refusal.startswith("error: the model has no tokenizer of two languages")


@pytest.mark.parametrize("vocabulary", ["trained here", "trained elsewhere"])
def test_text_is_translated_to_text(sublayer, translate, tmp_path, vocabulary):
    write_pair(tmp_path, MARKED_EN, MARKED_DE)
    settings: dict[str, Any] = {"data__tokenizer": "unigram", "data__vocab_size": 90}
    if vocabulary == "trained elsewhere":
        file = io.BytesIO()
        rules = {"model_type": "bpe", "vocab_size": 110, "hard_vocab_limit": False}
        lines = iter([*MARKED_EN, *MARKED_DE])
        SentencePieceTrainer.train(
            sentence_iterator=lines, model_writer=file, minloglevel=2, **rules
        )
        (tmp_path / "joint.model").write_bytes(file.getvalue())
        settings = {"data__tokenizer": str(tmp_path / "joint.model")}
    run = train_translator(tmp_path, data__lowercase=False, data__context=64, **settings)
    text = "".join(f"{line}\n" for line in MARKED_EN[:40])
    lines = translate(run, text.encode()).shown().splitlines()
    assert sum(line == target for line, target in zip(lines, MARKED_DE, strict=False)) >= 20
    assert all(line[-1] in "!." and line[-2] not in " !." for line in lines)
    found = sublayer("evaluate", run, "--split", "test", "--json").found()
    assert found["signature"]["bleu"].endswith("|words:spaces")
    assert found["sacrebleu"] > 30
