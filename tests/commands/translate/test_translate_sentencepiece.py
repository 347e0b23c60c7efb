"""A translator of text as it is written: with SentencePiece, and without Moses' rules."""

import io
from itertools import cycle
from pathlib import Path

import pytest
from sentencepiece import SentencePieceTrainer

from tests.commands.results import Sublayer
from tests.commands.translate.conftest import Translate
from tests.commands.translate.corpus import sentences, write_pair
from tests.translators import train_translator

WORDS = {
    "A": "Ein",
    "cat": "Kätzchen",
    "dog": "Hündchen",
    "sees": "hört",
    "the": "das",
    "and": "und",
    "bird": "Vögelchen",
}


def with_marks(lines: list[str]) -> list[str]:
    """End each line, in turn with either mark."""
    marks = cycle("!.")
    return [line + mark for line, mark in zip(lines, marks, strict=False)]


EN = with_marks(sentences(list(WORDS), 300, longest=4))
DE = with_marks(sentences(list(WORDS.values()), 300, longest=4))


def train_elsewhere() -> bytes:
    """Train one vocabulary of both languages, as others do, and return its file."""
    model = io.BytesIO()
    rules = {"model_type": "bpe", "vocab_size": 110, "hard_vocab_limit": False, "minloglevel": 2}
    both = iter([*EN, *DE])
    SentencePieceTrainer.train(sentence_iterator=both, model_writer=model, **rules)
    return model.getvalue()


@pytest.fixture(scope="module", params=["trained here", "trained elsewhere"])
def translator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translator")
    write_pair(folder, EN, DE)
    if request.param == "trained here":
        vocabulary = {"data__tokenizer": "unigram", "data__vocab_size": 90}
    else:
        (folder / "joint.model").write_bytes(train_elsewhere())
        vocabulary = {"data__tokenizer": str(folder / "joint.model")}
    return train_translator(folder, data__lowercase=False, data__context=64, **vocabulary)


def test_text_is_translated_to_text(translate: Translate, translator: Path) -> None:
    text = "".join(f"{line}\n" for line in EN[:40])
    lines = translate(translator, text.encode()).shown().splitlines()
    are_right = [line == target for line, target in zip(lines, DE[:40], strict=True)]
    assert sum(are_right) >= 20
    for line in lines:
        assert line[-1] in "!."
        assert line[-2] not in " !."


def test_the_words_that_are_scored_are_named(sublayer: Sublayer, translator: Path) -> None:
    found = sublayer("evaluate", translator, "--split", "test", "--json").found()
    assert found["signature"]["bleu"].endswith("|words:spaces")
    assert found["sacrebleu"] > 30
    shown = sublayer("evaluate", translator, "--split", "test").out
    assert "BLEU of words between spaces" in shown
    assert "BLEU of text" in shown
