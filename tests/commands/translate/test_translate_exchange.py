"""A translator in transformers and back writes the words that ``sublayer translate`` writes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.results import Sublayer
from tests.commands.translate.conftest import Translate
from tests.commands.translate.corpus import sentences, write_pair
from tests.translators import train_translator

WORDS = {
    "A": "Ein",
    "cat": "Kater",
    "dog": "Hündchen",
    "sees": "hört",
    "THE": "das",
    "and": "und",
    "bird": "Vogel",
}
EN = [f"{words} ." for words in sentences(list(WORDS), 280, longest=5)]
DE = [f"{words} ." for words in sentences(list(WORDS.values()), 280, longest=5)]
ORDERS = {
    "pre": {},
    "post": {
        "model__norm_order": "post",
        "model__sinusoids": "marian",
        "model__first_position": 0,
        "model__decoder_start": "pad",
    },
}

Translated = Callable[[Path, list[str]], list[str]]


@pytest.fixture(scope="module", params=ORDERS)
def translator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translator")
    write_pair(folder, EN, DE)
    return train_translator(folder, data__vocab_size=80, **ORDERS[request.param])


@pytest.fixture
def translated(translate: Translate) -> Translated:
    def run(model: Path, lines: list[str]) -> list[str]:
        text = "".join(f"{line}\n" for line in lines)
        result = translate(model, text.encode(), "--beam", 1, "--longest-more", 20)
        return result.shown().splitlines()

    return run


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


def test_both_write_the_same_words(
    sublayer: Sublayer, translator: Path, translated: Translated, tmp_path: Path
) -> None:
    there, back = tmp_path / "out", tmp_path / "back"
    exported = sublayer("export", translator, "--to", "huggingface", there).shown()
    assert exported.startswith(f"exported: {there}, with its tokenizer\n")
    given = EN[:40]
    ours = translated(translator, given)
    assert translate_elsewhere(there, given) == ours
    pairs = zip(ours, DE[:40], strict=True)
    are_right = [line == target.lower() for line, target in pairs]
    assert sum(are_right) > 20
    code, out, _ = sublayer("import", "huggingface", there, "--out", back)
    assert code == 0
    assert out.startswith(f"model: {back}, with its tokenizer\n")
    assert translated(back, given) == ours


def test_a_translator_without_a_tokenizer_is_refused_in_a_line(
    sublayer: Sublayer, translator: Path, tmp_path: Path
) -> None:
    there, back = tmp_path / "out", tmp_path / "back"
    sublayer("export", translator, there)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (there / name).unlink()
    out = sublayer("import", "huggingface", there, "--out", back).out
    assert out.startswith(f"model: {back}, without a tokenizer: the folder has none\n")
    code, out, err = sublayer("translate", back)
    assert (code, out) == (2, "")
    assert err.startswith("error: the model has no tokenizer of two languages")
