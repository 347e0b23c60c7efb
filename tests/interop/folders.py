"""Changes of a folder of transformers: of what a file says, of its weights; its tokenizer."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from sublayer.errors import CheckpointError
from sublayer.interop.huggingface import import_huggingface

WEIGHTS = "model.safetensors"


def read_json(path):
    return json.loads(path.read_text())


def change_json(path, **changes):
    path.write_text(json.dumps({**read_json(path), **changes}))


def change_weights(folder, change):
    tensors = load_file(folder / WEIGHTS)
    save_file(change(tensors) or tensors, folder / WEIGHTS)


def check_refused(folder, message, error=CheckpointError, by=import_huggingface):
    """Have an import refused in one line, and leave nothing behind."""
    out = folder.with_name("refused")
    with pytest.raises(error, match=message) as caught:
        by(folder, out)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600
    assert not out.exists()


def opened(folder):
    """Open the tokenizer of a folder as transformers does."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def close(found, expected, atol=1e-9):
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)
