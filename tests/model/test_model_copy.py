"""Copies of model folders, in parts or not."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from sublayer.model.model_copy import copy_model, is_copy
from tests.files.test_tensor_parts import TALL, WIDE, write_part


@pytest.fixture(params=["whole", "parts"])
def original(request, tmp_path):
    folder = tmp_path / "original"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    if request.param == "whole":
        save_file({"wide": WIDE, "tall": TALL}, folder / "model.safetensors")
    else:
        write_part(folder, 1, wide=(WIDE[:1], [0, 0]), tall=(TALL, [0, 0]))
        write_part(folder, 2, wide=(WIDE[1:], [1, 0]))
    return folder


@pytest.fixture
def copied(original, tmp_path):
    folder = tmp_path / "copied"
    folder.mkdir()
    copy_model(original, folder)
    return folder


def test_a_copy_has_all_weights_in_one_file(original, copied):
    assert sorted(path.name for path in copied.iterdir()) == ["config.json", "model.safetensors"]
    found = load_file(copied / "model.safetensors")
    assert torch.equal(found["wide"], WIDE)
    assert torch.equal(found["tall"], TALL)
    assert is_copy(copied, original)


def test_what_differs_is_no_copy(original, copied):
    save_file({"wide": -WIDE, "tall": TALL}, copied / "model.safetensors")
    assert not is_copy(copied, original)
    save_file({"wide": WIDE, "tall": TALL}, copied / "model.safetensors")
    assert is_copy(copied, original)
    (copied / "notes.txt").write_text("more")
    assert not is_copy(copied, original)
    shutil.rmtree(copied)
    assert not is_copy(copied, original)
