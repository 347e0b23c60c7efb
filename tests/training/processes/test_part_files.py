"""Parts that are read by the library's reader, which takes every file of a folder."""

import pytest
import torch
from safetensors.torch import save_file

from sublayer.errors import CheckpointError
from sublayer.files.tensor_parts import StoredTensors
from sublayer.training.processes.part_files import read_parts

PART = "shard-00001-model-00001-of-00001.safetensors"


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (("model.safetensors", PART), f"has {PART} beside model.safetensors"),
        ((PART, "copy.safetensors"), f"has copy.safetensors beside {PART}"),
    ],
)
def test_a_folder_of_two_checkpoints_is_refused(tmp_path, names, line):
    for number, name in enumerate(names):
        save_file({"x": torch.full([2], float(number))}, tmp_path / name)
    into = {"x": torch.zeros(2)}
    with pytest.raises(CheckpointError, match=f"{line}: one of them is of another checkpoint"):
        read_parts(into, StoredTensors(tmp_path / "model.safetensors", tmp_path))
    assert torch.equal(into["x"], torch.zeros(2))
