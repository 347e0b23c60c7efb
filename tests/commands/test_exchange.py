"""``sublayer import`` and ``sublayer export`` exchange models with transformers and show the certificate."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Sublayer = Callable[..., tuple[int, str, str]]


def test_a_run_goes_out_and_comes_back(sublayer: Sublayer, trained: Path, tmp_path: Path) -> None:
    code, out, err = sublayer("export", trained, "--to", "huggingface", tmp_path / "out")
    assert (code, err) == (0, "")
    assert out.startswith(f"exported: {tmp_path / 'out'}, with its tokenizer\nlargest difference of logits from ")
    code, out, err = sublayer("import", "huggingface", tmp_path / "out", "--out", tmp_path / "back", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["certificate"] == json.loads((tmp_path / "back" / "certificate.json").read_text())
    assert found["certificate"]["largest_difference"]["float64"] < 1e-9
    text = trained.parent / "text.txt"
    losses = [
        json.loads(sublayer("evaluate", model, "--path", text, "--json")[1])["loss"]
        for model in (trained, tmp_path / "back")
    ]
    assert losses[0] == losses[1]


def test_an_import_without_a_place_goes_to_runs(
    sublayer: Sublayer, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sublayer("export", trained, tmp_path / "mine")
    assert sublayer("import", "huggingface", tmp_path / "mine")[0] == 0
    assert (tmp_path / "runs" / "mine" / "model.safetensors").is_file()


def test_what_cannot_be_exchanged_is_refused_in_a_line(sublayer: Sublayer, trained: Path, tmp_path: Path) -> None:
    for words, message in (
        (("import", "huggingface", tmp_path / "nowhere", "--out", tmp_path / "new"), "is not a folder"),
        (
            ("import", "huggingface", trained / "model", "--out", tmp_path / "new"),
            "only 'gpt2', 'bert'",
        ),
        (("import", "elsewhere", trained, "--out", tmp_path / "new"), "elsewhere"),
        (("export", trained, "--to", "elsewhere", tmp_path / "new"), "elsewhere"),
        (("export", trained, "--to", "huggingface", trained), "nothing is overwritten"),
        (("export", tmp_path / "nowhere", "--to", "huggingface", tmp_path / "new"), "does not exist"),
    ):
        code, out, err = sublayer(*words)
        assert (code, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())
