"""Random small models of transformers, saved as HuggingFace folders."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.interop import encoders

Saved = tuple[Path, Any]


def random_fields(seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    n_heads = draw.choice([1, 2, 3, 5])
    return {
        "vocab_size": draw.randrange(11, 97),
        "n_positions": draw.randrange(13, 41),
        "n_embd": n_heads * draw.randrange(1, 8),
        "n_layer": draw.randrange(1, 4),
        "n_head": n_heads,
        "n_inner": draw.choice([None, draw.randrange(1, 50)]),
        "activation_function": draw.choice(
            ["gelu_new", "gelu", "gelu_pytorch_tanh", "relu", "silu"]
        ),
        "layer_norm_epsilon": draw.choice([1e-5, 1e-6, 1e-3]),
        "scale_attn_weights": draw.random() < 0.7,
        "tie_word_embeddings": draw.random() < 0.6,
        "resid_pdrop": draw.choice([0.0, 0.1]),
        "embd_pdrop": draw.choice([0.0, 0.2]),
        "attn_pdrop": draw.choice([0.0, 0.3]),
        "bos_token_id": None,
        "eos_token_id": None,
    }


@torch.no_grad()
def random_gpt2(**fields: Any) -> Any:
    """Build transformers' GPT-2 with every parameter random, norms and biases included."""
    from transformers import GPT2Config, GPT2LMHeadModel

    oracle = GPT2LMHeadModel(GPT2Config(**fields))
    generator = torch.Generator().manual_seed(1)
    for name, parameter in oracle.named_parameters():
        parameter.normal_(std=0.3, generator=generator)
        if ".ln_" in name and name.endswith("weight"):
            parameter.add_(1.0)
    return oracle.eval()


@pytest.fixture
def save_gpt2(tmp_path: Path) -> Callable[..., Saved]:
    """Return a function that builds a random GPT-2 and saves it as transformers does."""

    def save(seed: int = 0, *, dtype: torch.dtype = torch.float64, **fields: Any) -> Saved:
        oracle = random_gpt2(**{**random_fields(seed), **fields}).to(dtype)
        oracle.save_pretrained(tmp_path / "gpt2")
        return tmp_path / "gpt2", oracle

    return save


@pytest.fixture
def save_encoder(tmp_path: Path) -> encoders.SaveEncoder:
    """Return a function that builds a BERT or ALBERT of random sizes, and saves it."""

    def save(
        name: str,
        seed: int = 0,
        *,
        kind: str = "ForPreTraining",
        dtype: torch.dtype = torch.float64,
        **fields: Any,
    ) -> Saved:
        oracle = encoders.random_encoder(
            name, kind, **{**encoders.random_fields(name, seed), **fields}
        ).to(dtype)
        oracle.save_pretrained(tmp_path / name)
        return tmp_path / name, oracle

    return save


@pytest.fixture(autouse=True, scope="module")
def wide_norms() -> Iterator[None]:
    """Have transformers' T5 compute norms in the type of the model: they are float32 in any."""
    from transformers.models.t5 import modeling_t5

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        inverse = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        normed: torch.Tensor = self.weight * (x * inverse)
        return normed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling_t5.T5LayerNorm, "forward", forward)
        yield
