"""A translator of text as it is written: with SentencePiece, trained here or elsewhere, and without Moses' rules."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from sentencepiece import SentencePieceTrainer

from tests.translators import train_translator

pytestmark = pytest.mark.slow

Sublayer = Callable[..., tuple[int, str, str]]

WORDS = {
    "A": "Ein",
    "cat": "Kätzchen",
    "dog": "Hündchen",
    "sees": "hört",
    "the": "das",
    "and": "und",
    "bird": "Vögelchen",
}
EN, DE = (
    [" ".join(side[(i * j + i // 7) % 7] for j in range(1, 2 + i % 4)) + "!."[i % 2] for i in range(300)]
    for side in (list(WORDS), list(WORDS.values()))
)


@pytest.fixture(scope="module", params=["unigram", "joint.model"])
def translator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translator")
    (folder / "a.en").write_text("".join(f"{line}\n" for line in EN))
    (folder / "a.de").write_text("".join(f"{line}\n" for line in DE))
    model = io.BytesIO()
    rules = {"model_type": "bpe", "vocab_size": 110, "hard_vocab_limit": False, "minloglevel": 2}
    SentencePieceTrainer.train(sentence_iterator=iter([*EN, *DE]), model_writer=model, **rules)
    (folder / "joint.model").write_bytes(model.getvalue())
    is_trained = request.param == "unigram"
    size = {"data__vocab_size": 90} if is_trained else {}
    tokenizer = request.param if is_trained else str(folder / request.param)
    return train_translator(folder, data__lowercase=False, data__context=64, data__tokenizer=tokenizer, **size)


def test_text_is_translated_to_text(sublayer: Sublayer, translator: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO("".join(f"{line}\n" for line in EN[:40]).encode())
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=stream, isatty=lambda: False))
    code, out, err = sublayer("translate", translator)
    assert (code, err) == (0, "")
    found = out.splitlines()
    assert sum(line == right for line, right in zip(found, DE[:40], strict=True)) >= 20
    assert all(line[-1] in "!." and line[-2] not in " !." for line in found)


def test_the_words_that_are_scored_are_named(sublayer: Sublayer, translator: Path) -> None:
    code, out, err = sublayer("evaluate", translator, "--split", "test", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["signature"]["bleu"].endswith("|words:spaces") and found["sacrebleu"] > 30
    shown = sublayer("evaluate", translator, "--split", "test")[1]
    assert "BLEU of words between spaces" in shown and "BLEU of text" in shown
