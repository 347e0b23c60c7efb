"""Small models with random weights, wide enough that every term of a forward pass matters."""

import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.model.build import compose

VOCAB_SIZE, MAX_LEN = 17, 13


def make_config(**fields):
    return resolve_model(
        ModelConfig(**{"n_layers": 2, "d_model": 6, "n_heads": 3, "d_ff": 11, **fields}),
        vocab_size=VOCAB_SIZE,
        context=MAX_LEN,
    )


def make_model(config, *, seed=0, std=0.4):
    model = compose(config).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, std, generator=generator)
    return model


@pytest.fixture
def random_model():
    """Build a float64 decoder from fields: 17 tokens, 13 positions, all weights N(0, 0.4)."""

    def build(**fields):
        return make_model(make_config(**fields))

    return build


@pytest.fixture
def small_config():
    """Resolve a small config from its fields."""
    return make_config
