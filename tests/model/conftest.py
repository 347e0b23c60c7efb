"""Small models with random weights, wide enough that every term of a forward pass matters."""

import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.model.transformer import compose

VOCAB_SIZE, MAX_LEN = 17, 13


def make_config(**fields):
    sizes = {"n_layers": 2, "d_model": 6, "n_heads": 3, "d_ff": 11}
    return resolve_model(ModelConfig(**{**sizes, **fields}), vocab_size=VOCAB_SIZE, context=MAX_LEN)


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
    model, generator = compose(make_config(**fields)).double().eval(), torch.Generator()
    generator.manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.4, generator=generator)
    return model
