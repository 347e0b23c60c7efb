"""``sublayer inspect paths`` follows the first tokens of a text, and refuses the rest in a line."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.loading import load
from sublayer.model.build import build
from sublayer.model.model_folder import save_model
from tests.commands.results import Sublayer
from tests.wrapping import unwrapped

VOCABULARY = {"tokenizer.json": ByteTokenizer().serialize()}


@pytest.fixture
def albert(tmp_path: Path) -> Path:
    """The folder of an untrained post-norm encoder on bytes, whose two blocks share weights."""
    sizes = {"n_layers": 2, "d_model": 12, "n_heads": 2}
    config = ModelConfig(kind="encoder", share="all", norm_order="post", **sizes)
    model = build(resolve_model(config, vocab_size=256, context=16), seed=1)
    save_model(tmp_path / "albert", model, VOCABULARY)
    return tmp_path / "albert"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("The cat\nsat on $5.\n")
    return path


def followed(sublayer: Sublayer, run: Path, *options: object) -> dict[str, Any]:
    (found,) = sublayer("inspect", "paths", run, *options, "--json").answer()["runs"]
    assert len(found["stacks"]) == 1
    stack: dict[str, Any] = found["stacks"][0]
    return stack


def test_paths_are_those_of_the_model_in_their_plane(
    sublayer: Sublayer, trained: Path, text: Path
) -> None:
    stack = followed(sublayer, trained, "--path", text, "--tokens", 12)
    ids = list(text.read_bytes())
    assert (stack["read"], stack["ids"]) == (len(ids), ids[:12])
    assert stack["tokens"] == ["T", "h", "e", "▁", "c", "a", "t", "\\n", "s", "a", "t", "▁"]
    model = load(trained)
    block = model.stack.block(0)
    states = []
    handles = [block[0].register_forward_hook(lambda _, given, result: states.append(given[0]))]
    for each in block:
        handles.append(each.register_forward_hook(lambda _, given, result: states.append(result)))
    with torch.no_grad():
        model(torch.tensor([ids]))
    for handle in handles:
        handle.remove()
    watched = torch.cat(states)[:, :12].double().numpy()  # [3, 12, D]
    for (before, after), step in zip(pairwise(watched), stack["steps"], strict=True):
        length = np.linalg.norm(after - before, axis=1).mean()
        assert step["length"] == pytest.approx(length, rel=1e-5)
    # Principal components by the covariance of the states.
    flat = watched.reshape(36, -1)
    centred = flat - flat.mean(0)
    variances, axes = np.linalg.eigh(centred.T @ centred)
    assert stack["shares"] == pytest.approx(
        (variances[:-3:-1] / variances.sum()).tolist(), rel=1e-5
    )
    expected = centred @ axes[:, :-3:-1]
    found = np.array(stack["coordinates"]).reshape(36, 2)
    signs = np.sign((found * expected).sum(0))
    np.testing.assert_allclose(found, expected * signs, rtol=0, atol=1e-4)


def test_tokens_that_never_move_have_no_shares(
    sublayer: Sublayer, trained: Path, text: Path, tmp_path: Path
) -> None:
    model = load(trained)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    save_model(tmp_path / "zero", model, VOCABULARY)
    out = tmp_path / "zero.svg"
    stack = followed(sublayer, tmp_path / "zero", "--path", text, "--out", out)
    assert stack["shares"] == [None, None]
    assert [(step["length"], step["in_plane"]) for step in stack["steps"]] == [(0.0, None)] * 2
    said = unwrapped(sublayer("inspect", "paths", tmp_path / "zero", "--path", text).shown())
    assert "the plane has none and none of the variance of 48 states" in said
    assert out.is_file()
