"""``sublayer evaluate`` scores the text that was asked for, and refuses the rest in a line."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.loading import load
from sublayer.model.model_folder import save_model
from tests.commands.results import Sublayer


def evaluated(sublayer: Sublayer, run: Path, *options: object) -> dict[str, Any]:
    return sublayer("evaluate", run, *options, "--json").found()


def record_of(run: Path) -> dict[str, Any]:
    text = (run / "record.json").read_text()
    record: dict[str, Any] = json.loads(text)
    return record


def test_the_answer_holds_every_measure_of_the_same_text(sublayer: Sublayer, trained: Path) -> None:
    found = evaluated(sublayer, trained, "--split", "test")
    raw = (trained.parent / "text.txt").read_bytes()
    n_bytes = found["bytes"]
    # The split is cut at a character, as near to 5 % as that allows.
    assert n_bytes == pytest.approx(0.05 * len(raw), abs=3)
    assert found["tokens"] == n_bytes
    n_before = len(raw) - n_bytes
    scored = raw[n_before:]
    n_words = len(scored.split())
    if not raw[:n_before].endswith((b" ", b"\n")):
        n_words -= 1  # the first is the end of a word that began before
    assert found["words"] == n_words
    bits = found["bits_per_byte"]
    assert bits == pytest.approx(found["loss"] / math.log(2))
    bytes_per_character = n_bytes / found["characters"]
    assert found["bits_per_character"] == pytest.approx(bits * bytes_per_character)
    perplexity = math.exp(found["loss"])
    assert found["perplexity"] == pytest.approx(perplexity)
    assert found["split"] == "test"
    assert found["context"] == 32
    assert found["stride"] == 16
    assert found["is_lossless"] is True


def test_the_stride_of_the_context_gives_what_training_reported(
    sublayer: Sublayer, trained: Path
) -> None:
    found = evaluated(sublayer, trained, "--stride", 32)
    reported = record_of(trained)["valid"]["loss"]
    assert found["loss"] == pytest.approx(reported, rel=1e-6)


def test_a_checkpoint_and_a_model_folder_are_scored_alike(
    sublayer: Sublayer, trained: Path
) -> None:
    loss = evaluated(sublayer, trained)["loss"]
    best_step = record_of(trained)["valid"]["step"]
    checkpoint = trained / "checkpoints" / f"step-{best_step:08d}"
    for part in (trained / "model", checkpoint):
        assert evaluated(sublayer, part)["loss"] == loss


def test_a_model_outside_its_run_scores_a_text_that_is_named(
    sublayer: Sublayer, trained: Path, tmp_path: Path
) -> None:
    text, copied = tmp_path / "ten.txt", tmp_path / "copied"
    text.write_bytes(b"ten bytes!")
    shutil.copytree(trained / "model", copied)
    found = evaluated(sublayer, copied, "--path", text)
    assert found["tokens"] == 9
    assert found["bytes"] == 9
    assert found["words"] == 1
    assert found["split"] is None
    assert "does not belong to a run" in sublayer("evaluate", copied).refusal()


def test_a_named_corpus_is_scored_by_its_splits(sublayer: Sublayer, trained: Path) -> None:
    options = ("--corpus", "python", "--stride", 32)
    valid = evaluated(sublayer, trained, *options)
    test = evaluated(sublayer, trained, *options, "--split", "test")
    assert (valid["split"], test["split"]) == ("valid", "test")
    assert valid["sha256"] != test["sha256"]


def test_a_lossy_tokenizer_is_marked_and_divided_by_what_was_read(
    sublayer: Sublayer, trained: Path, tmp_path: Path
) -> None:
    model, text = tmp_path / "model", tmp_path / "text.txt"
    # The text's € is unknown to it.
    known = train_tokenizer("characters", ["abcü ".encode()])
    save_model(model, load(trained), {"tokenizer.json": known.serialize()})
    text.write_text("abc €€ bü", encoding="utf-8")
    found = evaluated(sublayer, model, "--path", text)
    assert found["tokens"] == 8
    assert found["characters"] == 8
    assert found["bytes"] == 13
    assert found["is_lossless"] is False
    assert "the tokenizer is lossy" in sublayer("evaluate", model, "--path", text).out
