"""A translator of text as it is written: with SentencePiece, trained here or elsewhere, and without Moses' rules."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from sentencepiece import SentencePieceTrainer

from sublayer.run import train

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
    settings = {
        "data.source_path": str(folder / "a.en"),
        "data.target_path": str(folder / "a.de"),
        "data.moses": "none",
        "data.lowercase": False,
        "data.tokenizer": request.param if request.param == "unigram" else str(folder / request.param),
        **({"data.vocab_size": 90} if request.param == "unigram" else {}),
        "data.context": 64,
        "model.n_layers": 1,
        "model.d_model": 32,
        "model.d_ff": 32,
        "model.dropout": 0.0,
        "model.dropout_attention": 0.0,
        "model.dropout_ffn": 0.0,
        "optimizer.warmup_steps": 30,
        "train.steps": 150,
        "train.batch_tokens": 320,
        "train.evaluate_steps": 50,
        "train.precision": "float32",
        "train.threads": 1,
    }
    train("multi30k-tiny", settings, out=folder / "run")
    return folder / "run"


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
