"""Changes of a folder of transformers: of what a file says, of its weights; its tokenizer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

WEIGHTS = "model.safetensors"
Weights = dict[str, Tensor]


def read_json(path: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(path.read_text())
    return fields


def change_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**read_json(path), **changes}))


def change_weights(folder: Path, change: Callable[[Weights], Weights | None]) -> None:
    tensors = load_file(folder / WEIGHTS)
    save_file(change(tensors) or tensors, folder / WEIGHTS)


def opened(folder: Path) -> Any:
    """Open the tokenizer of a folder as transformers does."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def assert_same_bits(one: Weights, other: Weights) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@torch.no_grad()
def with_random_vectors(model: Any, std: float = 0.1) -> Any:
    """Add noise to biases and norms, which are built as zeros and ones; give the model."""
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.add_(torch.empty_like(parameter).normal_(std=std, generator=generator))
    return model.eval()
