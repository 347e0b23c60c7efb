"""``sublayer evaluate`` scores the text that was asked for, says how much, and refuses the rest in a line."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sublayer.data.tokenizer import train_tokenizer
from sublayer.load import load
from sublayer.model.saved import save_model

Sublayer = Callable[..., tuple[int, str, str]]


def answer(result: tuple[int, str, str]) -> dict[str, Any]:
    code, out, err = result
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    found: dict[str, Any] = json.loads(out)
    return found


def refusal(result: tuple[int, str, str]) -> str:
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    return err


def test_the_answer_holds_every_measure_of_the_same_text(sublayer: Sublayer, trained: Path) -> None:
    found = answer(sublayer("evaluate", trained, "--split", "test", "--json"))
    raw = (trained.parent / "text.txt").read_bytes()
    # The split is cut at a character, as near to 5 % as that allows.
    scored = raw[len(raw) - found["bytes"] :]
    assert found["tokens"] == found["bytes"] == pytest.approx(0.05 * len(raw), abs=3)
    assert found["words"] == len(scored.split()) - (0 if raw[-found["bytes"] - 1 :][:1].isspace() else 1)
    assert found["bits_per_byte"] == pytest.approx(found["loss"] / math.log(2))
    assert found["bits_per_character"] == pytest.approx(found["bits_per_byte"] * found["bytes"] / found["characters"])
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert (found["split"], found["context"], found["stride"], found["is_lossless"]) == ("test", 32, 16, True)


def test_the_validation_split_is_scored_unless_another_is_asked_for(sublayer: Sublayer, trained: Path) -> None:
    found = answer(sublayer("evaluate", trained, "--json"))
    assert found["split"] == "valid"
    record = json.loads((trained / "record.json").read_text())
    assert found["sha256"] == record["data"]["checksums"]["valid"]


def test_the_stride_of_the_context_gives_what_training_reported(sublayer: Sublayer, trained: Path) -> None:
    found = answer(sublayer("evaluate", trained, "--stride", 32, "--json"))
    record = json.loads((trained / "record.json").read_text())
    assert found["loss"] == pytest.approx(record["valid"]["loss"], rel=1e-6)


def test_the_table_says_how_many_tokens_were_scored(sublayer: Sublayer, trained: Path) -> None:
    code, out, err = sublayer("evaluate", trained, "--stride", 8, "--batch", 3)
    assert (code, err) == (0, "")
    tokens = answer(sublayer("evaluate", trained, "--json"))["tokens"]
    assert out.startswith(f"scored {tokens:,} tokens of the valid split of {trained.parent / 'text.txt'}\n")
    assert "in windows of 32 tokens, stride 8\n" in out
    assert "word perplexity" in out


def test_a_checkpoint_and_a_model_folder_are_scored_alike(sublayer: Sublayer, trained: Path, tmp_path: Path) -> None:
    loss = answer(sublayer("evaluate", trained, "--json"))["loss"]
    step = json.loads((trained / "record.json").read_text())["valid"]["step"]
    for part in (trained / "model", trained / "checkpoints" / f"step-{step:08d}"):
        assert answer(sublayer("evaluate", part, "--json"))["loss"] == loss
    text = tmp_path / "ten.txt"
    text.write_bytes(b"ten bytes!")
    shutil.copytree(trained / "model", tmp_path / "copied")
    found = answer(sublayer("evaluate", tmp_path / "copied", "--path", text, "--json"))
    assert (found["tokens"], found["bytes"], found["words"], found["split"]) == (9, 9, 1, None)
    assert "does not belong to a run" in refusal(sublayer("evaluate", tmp_path / "copied"))


@pytest.mark.slow
def test_a_named_corpus_is_scored_by_its_splits(sublayer: Sublayer, trained: Path) -> None:
    words = ("evaluate", trained, "--corpus", "python", "--stride", 32, "--json")
    valid, test = answer(sublayer(*words)), answer(sublayer(*words, "--split", "test"))
    assert (valid["split"], test["split"]) == ("valid", "test")
    assert valid["sha256"] != test["sha256"]


def test_a_lossy_tokenizer_is_marked_and_divided_by_what_was_read(
    sublayer: Sublayer, trained: Path, tmp_path: Path
) -> None:
    model = load(trained)
    # The text's € is unknown to it.
    known = train_tokenizer("characters", ["abcü ".encode()])
    save_model(tmp_path / "model", model, {"tokenizer.json": known.serialize()})
    (tmp_path / "text.txt").write_text("abc €€ bü", encoding="utf-8")
    words = ("evaluate", tmp_path / "model", "--path", tmp_path / "text.txt")
    found = answer(sublayer(*words, "--json"))
    assert (found["tokens"], found["characters"], found["bytes"], found["is_lossless"]) == (8, 8, 13, False)
    assert "the tokenizer is lossy" in sublayer(*words)[1]


def test_a_text_that_changed_since_training_is_not_scored_as_a_split(
    sublayer: Sublayer, trained: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    text = (trained.parent / "text.txt").read_text()
    (tmp_path / "text.txt").write_text(text.swapcase())
    recipe = tmp_path / "run" / "recipe.toml"
    recipe.write_text(recipe.read_text().replace(str(trained.parent / "text.txt"), str(tmp_path / "text.txt")))
    assert "no longer what it was trained with" in refusal(sublayer("evaluate", tmp_path / "run"))


def test_a_model_without_a_tokenizer_cannot_read_text(sublayer: Sublayer, trained: Path, tmp_path: Path) -> None:
    save_model(tmp_path / "bare", load(trained), {})
    message = refusal(sublayer("evaluate", tmp_path / "bare", "--path", trained.parent / "text.txt"))
    assert "has no tokenizer.json" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--stride", 33), "stride = 33 must be at least 1 and at most the context of 32"),
        (("--stride", 0), "--stride"),
        (("--path", "here", "--split", "test"), "leave out --split"),
        (("--path", "here", "--corpus", "python"), "leave out --corpus"),
        (("--path", "/nowhere/at/all"), "no such file or folder: /nowhere/at/all"),
        (("--corpus", "nosuch"), "'nosuch' is not one of python"),
        (("--device", "nosuch"), "device 'nosuch' is not there"),
        (("--split", "train"), "'train'"),
        (("--batch", 0), "--batch"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_a_line(
    sublayer: Sublayer, trained: Path, words: tuple[object, ...], message: str
) -> None:
    assert message in refusal(sublayer("evaluate", trained, *words))


def test_texts_too_short_and_runs_that_are_not_there_are_refused(
    sublayer: Sublayer, trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "short.txt").write_text("x")
    assert "2 are the least" in refusal(sublayer("evaluate", trained, "--path", tmp_path / "short.txt"))
    assert "does not exist" in refusal(sublayer("evaluate", tmp_path / "nothing"))
