"""An imported model is scored on a task that is named, whatever the order of its labels."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from sublayer import cli
from sublayer.interop.huggingface.exchange import export_huggingface, import_huggingface
from sublayer.tasks.registry import TASKS
from tests.interop.answering import model_for

ROWS = [
    ("the dog ran", "the cat sat", "entailment"),
    ("it is the best of them", "it is wrong", "not_entailment"),
    ("a film", "a mat over the field", "entailment"),
    ("nothing of it", "everyone smiled", "not_entailment"),
    ("them all", "a cat", "entailment"),
]


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    """A model of two labels, imported from a folder without a task, and from it turned round."""
    export_huggingface(model_for("bert", TASKS["rte"]), tmp_path / "theirs")
    (tmp_path / "theirs" / "task.json").unlink()
    turned = shutil.copytree(tmp_path / "theirs", tmp_path / "turned")
    tensors = load_file(turned / "model.safetensors")
    for name in ("classifier.weight", "classifier.bias"):
        tensors[name] = tensors[name].flip(0).contiguous()
    save_file(tensors, turned / "model.safetensors")
    config = json.loads((turned / "config.json").read_text())
    config["id2label"] = {"0": "NOT_ENTAILMENT", "1": "Entailment"}
    (turned / "config.json").write_text(json.dumps(config))
    for name in ("theirs", "turned"):
        import_huggingface(tmp_path / name, tmp_path / f"from {name}")
    folder = tmp_path / "glue" / "RTE"
    folder.mkdir(parents=True)
    lines = [f"{number}\t" + "\t".join(row) for number, row in enumerate(ROWS * 4)]
    for split in ("train", "dev"):
        text = "\n".join(["index\tsentence1\tsentence2\tlabel", *lines])
        (folder / f"{split}.tsv").write_text(text + "\n")
    return tmp_path


def evaluated(place: Path, name: str, *options: str) -> tuple[int, str]:
    words = ["evaluate", str(place / f"from {name}"), "--path", str(place / "glue"), *options]
    return cli.main(words), name


def test_the_score_depends_on_the_words_of_labels_and_not_on_their_order(
    imported: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBLAYER_CACHE", str(imported / "cache"))
    results: list[dict[str, Any]] = []
    for name in ("theirs", "turned"):
        code, _ = evaluated(imported, name, "--task", "rte", "--json")
        printed = capsys.readouterr()
        assert code == cli.DONE, printed.err
        results.append(json.loads(printed.out))
    assert results[0]["tasks"] == results[1]["tasks"]
    assert results[0]["loss"] == pytest.approx(results[1]["loss"], abs=1e-6)
    assert torch.tensor(results[0]["loss"]) != 0


def test_a_task_that_is_not_named_or_has_other_labels_is_refused_in_words(
    imported: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBLAYER_CACHE", str(imported / "cache"))
    said = {}
    for options in ((), ("--task", "sst2"), ("--task", "rtee")):
        code, _ = evaluated(imported, "theirs", *options)
        assert code == 2
        said[options] = capsys.readouterr().err
    assert "answers imported, of which there are no files: name a task" in said[()]
    assert "which is which is not guessed" in said["--task", "sst2"]
    assert "--task rtee is no task: did you mean rte?" in said["--task", "rtee"]
