"""Small models with random weights, wide enough that every term of a forward pass matters."""

import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from tests import encoders

VOCAB_SIZE, MAX_LEN = 17, 13
SIZES = {"n_layers": 2, "d_model": 6, "n_heads": 3, "d_ff": 11}


def make_config(**fields):
    return resolve_model(ModelConfig(**{**SIZES, **fields}), vocab_size=VOCAB_SIZE, context=MAX_LEN)


def close(actual, expected, atol=1e-12):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def check_gradients(own, expected, inputs, atol=1e-12):
    """Compare values, and their gradients with respect to the inputs."""
    close(own, expected, atol)
    generator, rules = torch.Generator().manual_seed(0), {"retain_graph": True}
    sink = torch.randn(own.shape, dtype=own.dtype, generator=generator)
    close(*(torch.autograd.grad(each, inputs, sink, **rules) for each in (own, expected)), atol)


def random_model(**fields):
    """Build a float64 model from fields: 17 tokens, 13 positions, all weights N(0, 0.4)."""
    return encoders.random_model({**SIZES, **fields}, VOCAB_SIZE, MAX_LEN, std=0.4, seed=0)
