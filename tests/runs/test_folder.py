from pathlib import Path

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError
from sublayer.runs.folder import RunFolder, default_folder


def test_resuming_without_a_folder_goes_on_with_the_last_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert default_folder(load_recipe("gpt"), resume=True).as_posix() == "runs/gpt"
    for expected in ("gpt", "gpt.2", "gpt.3"):
        folder = default_folder(load_recipe("gpt"), resume=False)
        folder.mkdir(parents=True)
        assert default_folder(load_recipe("gpt"), resume=True) == folder
        assert folder.as_posix() == f"runs/{expected}"


def test_runs_that_an_earlier_version_numbered_are_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("gpt", "gpt-2"):
        run = Path("runs", name)
        run.mkdir(parents=True)
        (run / "recipe.toml").touch()
    assert default_folder(load_recipe("gpt"), resume=True).as_posix() == "runs/gpt-2"
    Path("runs/gpt-3").mkdir()  # an imported model, which is no run
    assert default_folder(load_recipe("gpt"), resume=True).as_posix() == "runs/gpt-2"
    Path("runs/gpt.2").mkdir()
    assert default_folder(load_recipe("gpt"), resume=True).as_posix() == "runs/gpt.2"


def test_several_processes_must_be_given_their_folder(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="name it with --out"):
        default_folder(load_recipe("gpt"), resume=False)


def test_a_run_that_wrote_nothing_leaves_no_folder(tmp_path):
    with pytest.raises(KeyError):
        with RunFolder(tmp_path / "run").held():
            raise KeyError
    assert not (tmp_path / "run").exists()
    with RunFolder(tmp_path / "run").held():
        (tmp_path / "run" / "recipe.toml").write_text("")
    assert (tmp_path / "run" / "recipe.toml").exists()
