"""A run is a dict of its record with what can be done with it, and shows itself."""

import json
from pathlib import Path
from typing import Any

import pytest

import sublayer
from sublayer.cli import main
from sublayer.errors import ConfigError

TINY: dict[str, Any] = {
    "model.n_layers": 1,
    "model.d_model": 16,
    "model.n_heads": 2,
    "data.context": 32,
    "train.steps": 4,
    "train.evaluate_steps": 2,
    "train.batch_sequences": 2,
    "train.precision": "float32",
    "train.threads": 1,
}


@pytest.fixture
def workplace(tmp_path: Path, own_cache: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "text.txt").write_text("The cat sat on the mat while it rained.\n" * 300)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_train_returns_the_run_as_a_dict_of_its_record(workplace: Path):
    run = sublayer.train("gpt", {**TINY, "data.path": "text.txt"}, out="runs/a")
    assert run == json.loads((workplace / "runs/a/record.json").read_text())
    assert run["valid"]["bits_per_byte"] > 0
    assert run.path == Path("runs/a")
    assert run.recipe.model.d_model == 16
    assert [line["step"] for line in run.curve] == [2, 4]
    assert {line["kind"] for line in run.metrics} >= {"valid"}
    assert sublayer.open_run("runs/a") == run
    assert run.load().config == sublayer.load(run).config
    assert sublayer.train(run, resume=True) == run


def test_a_run_shows_itself_in_a_shell_and_in_a_notebook(trained: Path):
    run = sublayer.open_run(trained)
    lines = repr(run).splitlines()
    assert str(trained) in lines[0]
    assert f"bits_per_byte {run['valid']['bits_per_byte']:.4f}" in lines[1]
    html = run._repr_html_()
    assert "<table>" in html
    assert "data:image/svg+xml;base64," in html


def test_a_run_that_is_not_finished_says_so(trained: Path, tmp_path: Path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "recipe.toml").write_bytes((trained / "recipe.toml").read_bytes())
    run = sublayer.open_run(folder)
    assert not run.is_finished
    assert run == {}
    assert "not finished" in repr(run)
    assert "not finished" in run._repr_html_()


@pytest.mark.slow
def test_compare_stops_where_it_is_decided(workplace: Path):
    settings = {**TINY, "data.path": "text.txt"}
    asked = {"until": "decided", "seeds_at_most": 5, "margin": "3 bits per byte"}
    vary = ["model.gelu=tanh,exact"]
    plan = sublayer.plan("gpt", settings, vary=vary, **asked)
    assert plan["total"]["runs"] == 2 * 5
    found = sublayer.compare("gpt", settings, vary=vary, out="runs/until", **asked)
    (difference,) = found["differences"]
    assert difference["verdict"] == "no difference that matters"
    assert difference["n_seeds"] == 3
    with pytest.raises(ConfigError, match="are told in bits per byte, not in BLEU"):
        sublayer.compare("gpt", settings, vary=vary, seeds=3, margin="1 BLEU", out="runs/none")


@pytest.mark.slow
def test_compare_gives_what_the_command_prints(workplace: Path, capsys: pytest.CaptureFixture[str]):
    settings = {**TINY, "data.path": "text.txt"}
    vary = "model.ffn=gelu,swiglu"
    found = sublayer.compare("gpt", settings, vary=[vary], seeds=3, out="runs/c")
    capsys.readouterr()
    words = [f"{key}={value}" for key, value in settings.items()]
    command = ["compare", "gpt", *words, "--vary", vary, "--seeds", "3", "--out", "runs/c"]
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    for name in ("arms", "differences", "notes", "metric"):
        assert found[name] == told[name]
    assert found.verdicts == {each["arm"]: each["verdict"] for each in told["differences"]}
    assert found["report"] in repr(found)
    html = found._repr_html_()
    assert all(verdict in html for verdict in found.verdicts.values())
    assert "data:image/svg+xml;base64," in html
