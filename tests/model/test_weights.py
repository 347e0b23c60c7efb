"""Weights of any format become what the program computes in, or are refused by name."""

import logging
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import CheckpointError
from sublayer.loading import load
from sublayer.model.build import build
from sublayer.model.model_folder import WEIGHTS_NAME, save_model
from sublayer.model.weights import FLOATS

OTHERS = (
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
)
TOKENS = torch.arange(5)[None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = ModelConfig(n_layers=2, d_model=6, n_heads=2, positions="learned")
    path = tmp_path_factory.mktemp("models") / "model"
    save_model(path, build(resolve_model(config, vocab_size=7, context=5), seed=1), {})
    return path


@settings(max_examples=40)
@given(st.data())
def test_one_tensor_of_another_format_is_converted_or_refused_by_name(
    folder: Path, data: st.DataObject
) -> None:
    tensors = load_file(folder / WEIGHTS_NAME)
    name = data.draw(st.sampled_from(sorted(tensors)))
    dtype = data.draw(st.sampled_from([*FLOATS, *OTHERS]))
    changed = folder.with_name("changed")
    changed.mkdir(exist_ok=True)
    (changed / "config.json").write_bytes((folder / "config.json").read_bytes())
    save_file({**tensors, name: tensors[name].to(dtype)}, changed / WEIGHTS_NAME)
    if dtype in OTHERS:
        message = rf"has {name} as \w+: weights are floating-point"
        with pytest.raises(CheckpointError, match=message):
            load(changed)
        return
    model = load(changed)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    expected = load(folder)(TOKENS).logits
    torch.testing.assert_close(model(TOKENS).logits, expected, rtol=0.02, atol=0.02)


@settings(max_examples=20)
@given(st.data())
def test_a_number_that_is_not_finite_is_refused_by_name(folder: Path, data: st.DataObject) -> None:
    tensors = load_file(folder / WEIGHTS_NAME)
    name = data.draw(st.sampled_from(sorted(tensors)))
    place = data.draw(st.integers(0, tensors[name].numel() - 1))
    tensors[name].view(-1)[place] = data.draw(st.sampled_from([torch.nan, torch.inf, -torch.inf]))
    changed = folder.with_name("changed")
    changed.mkdir(exist_ok=True)
    (changed / "config.json").write_bytes((folder / "config.json").read_bytes())
    save_file(tensors, changed / WEIGHTS_NAME)
    with pytest.raises(CheckpointError, match=rf"{name} holds numbers that are not finite"):
        load(changed)


def test_a_conversion_is_said(
    folder: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    tensors = load_file(folder / WEIGHTS_NAME)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    save_file(
        {name: tensor.bfloat16() for name, tensor in tensors.items()}, tmp_path / WEIGHTS_NAME
    )
    with caplog.at_level(logging.WARNING):
        load(tmp_path)
    assert f"{len(tensors)} of bfloat16 became float32" in caplog.text
