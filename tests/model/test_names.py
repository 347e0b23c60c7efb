"""A model of which a module is renamed is drawn, stored, loaded and resumed as before."""

import shutil

import pytest
import torch

import sublayer
from sublayer.model import parameters
from sublayer.model.blocks import FeedForward
from sublayer.model.parameters import persistent_name
from sublayer.model.transformer import build
from tests.model.conftest import make_config
from tests.stories import write_stories

SETTINGS = {"model.n_layers": 2, "model.d_model": 16, "model.n_heads": 2, "data.context": 16}
SETTINGS |= {"optimizer.kind": "lamb", "train.steps": 4, "train.checkpoint_steps": 2}
SETTINGS |= {"train.evaluate_steps": 2, "train.batch_sequences": 4, "train.threads": 1}
SETTINGS |= {"train.precision": "float32"}


@pytest.fixture
def rename(monkeypatch):
    """Rename the last map of feed-forward networks, with a row of the table that says so."""
    build_network = FeedForward.__init__

    def __init__(self, *sizes, **settings):
        build_network(self, *sizes, **settings)
        modules = {"w2" if name == "output" else name: each for name, each in self._modules.items()}
        self._modules = modules

    def call():
        monkeypatch.setitem(parameters.RENAMED, "function.w2", "function.output")
        monkeypatch.setattr(FeedForward, "__init__", __init__)
        monkeypatch.setattr(FeedForward, "output", property(lambda self: self.w2), raising=False)

    return call


def test_parts_of_paths_are_whole(monkeypatch):
    monkeypatch.setitem(parameters.RENAMED, "a.b", "c")
    found = [persistent_name(name) for name in ("a.b", "a.b.a.b", "x.a.b.y", "aa.b", "a.bb", "b.a")]
    assert found == ["c", "c.c", "x.c.y", "aa.b", "a.bb", "b.a"]


def test_a_renamed_module_has_the_weights_of_before_under_their_names(rename):
    config = make_config(init="scaled")
    before = build(config, seed=3).state_dict()
    rename()
    model = build(config, seed=3)
    now = model.state_dict()
    assert any(".w2." in name for name, _ in model.named_parameters())
    assert list(now) == list(before)
    assert all(torch.equal(now[name], before[name]) for name in before)
    other = build(config, seed=4)
    other.load_state_dict(before)
    assert all(
        torch.equal(*pair) for pair in zip(other.parameters(), model.parameters(), strict=True)
    )


def test_a_run_of_before_resumes_and_ends_with_the_files_that_it_would_have_had(rename, tmp_path):
    (tmp_path / "stories").mkdir()
    write_stories(tmp_path / "stories")
    settings = {**SETTINGS, "data.path": tmp_path / "stories"}
    sublayer.train("gpt", settings, out=tmp_path / "run", device="cpu")
    ended = tmp_path / "run" / "checkpoints" / "step-00000004"
    shutil.copytree(tmp_path / "run", tmp_path / "known")
    shutil.rmtree(ended)
    shutil.rmtree(tmp_path / "run" / "model")
    (tmp_path / "run" / "record.json").unlink()
    rename()
    sublayer.train(tmp_path / "run", out=tmp_path / "run", device="cpu", resume=True)
    files = [path.relative_to(tmp_path / "run") for path in ended.rglob("*.safetensors")]
    assert len(files) == 2
    for file in files:
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "known" / file).read_bytes()
