"""A translator in transformers and back: the words that it writes are those that ``sublayer translate`` writes."""

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.translators import train_translator

pytestmark = pytest.mark.slow

Sublayer = Callable[..., tuple[int, str, str]]

WORDS = {"A": "Ein", "cat": "Kater", "dog": "Hündchen", "sees": "hört", "THE": "das", "and": "und", "bird": "Vogel"}
EN, DE = (
    [" ".join(names[(i * j + i // 7) % 7] for j in range(1, 2 + i % 5)) + " ." for i in range(280)]
    for names in (list(WORDS), list(WORDS.values()))
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
def translator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translator")
    (folder / "a.en").write_text("".join(f"{line}\n" for line in EN))
    (folder / "a.de").write_text("".join(f"{line}\n" for line in DE))
    return train_translator(folder, data__vocab_size=80, **ORDERS[request.param])


@pytest.fixture
def translated(sublayer: Sublayer, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, list[str]], list[str]]:
    def translate(model: Path, lines: list[str]) -> list[str]:
        stream = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=stream, isatty=lambda: False))
        code, out, err = sublayer("translate", model, "--beam", 1, "--longest-more", 20)
        assert (code, err) == (0, "")
        return out.splitlines()

    return translate


def test_both_write_the_same_words(
    sublayer: Sublayer, translator: Path, translated: Callable[[Path, list[str]], list[str]], tmp_path: Path
) -> None:
    import transformers

    code, out, err = sublayer("export", translator, "--to", "huggingface", tmp_path / "out")
    assert (code, err) == (0, "") and out.startswith(f"exported: {tmp_path / 'out'}, with its tokenizer\n")
    given = EN[:40]
    ours = translated(translator, given)
    model: Any = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    inputs = tokenizer(given, return_tensors="pt", padding=True)
    ids = model.generate(**inputs, num_beams=1, do_sample=False, max_new_tokens=21, min_new_tokens=1)
    assert [" ".join(each.split()) for each in tokenizer.batch_decode(ids, skip_special_tokens=True)] == ours
    assert sum(line == right.lower() for line, right in zip(ours, DE[:40], strict=True)) > 20
    code, out, err = sublayer("import", "huggingface", tmp_path / "out", "--out", tmp_path / "back")
    assert code == 0 and out.startswith(f"model: {tmp_path / 'back'}, with its tokenizer\n")
    assert translated(tmp_path / "back", given) == ours


def test_a_translator_without_a_tokenizer_is_refused_in_a_line(
    sublayer: Sublayer, translator: Path, tmp_path: Path
) -> None:
    sublayer("export", translator, tmp_path / "out")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "out" / name).unlink()
    out = sublayer("import", "huggingface", tmp_path / "out", "--out", tmp_path / "back")[1]
    assert out.startswith(f"model: {tmp_path / 'back'}, without a tokenizer: the folder has none\n")
    code, out, err = sublayer("translate", tmp_path / "back")
    assert (code, out) == (2, "") and err.startswith("error: the model has no tokenizer of two languages")
