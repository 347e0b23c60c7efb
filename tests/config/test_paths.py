from pathlib import Path

from sublayer.config.data import DataConfig
from sublayer.config.paths import anchored
from sublayer.config.recipe import Recipe


def test_paths_are_made_absolute_and_data_sets_of_the_hub_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = DataConfig(path=("a/../b.txt", "hub:owner/name:config@train"), valid_path="hub:owner/other")
    found = anchored(Recipe(data=data)).data
    assert found.path == (str(Path.cwd() / "b.txt"), "hub:owner/name:config@train")
    assert found.valid_path == "hub:owner/other"
