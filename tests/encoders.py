"""Tiny models in float64, with weights so large that every term of a forward pass matters."""

import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.model.transformer import Encoder, compose

FIELDS = {"kind": "encoder", "n_layers": 2, "d_model": 12, "n_heads": 2, "d_ff": 10}
FIELDS |= {"segments": "both", "head": "transform", "head_bias": True, "pooler": "tanh"}
FIELDS |= {"sentence_classes": 2}


@torch.no_grad()
def drawn(model, std=0.3, seed=1):
    """Draw all weights of a model from N(0, std)."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.normal_(0.0, std, generator=generator)
    return model


def random_model(fields, vocab_size, context, *, std=0.3, seed=1, dtype=torch.float64):
    """Build a model of any kind from fields, all weights drawn from N(0, std)."""
    config = ModelConfig.model_validate(fields)
    model = compose(resolve_model(config, vocab_size=vocab_size, context=context))
    return drawn(model.to(dtype).eval(), std, seed)


def encoder_of(vocab_size, context, **fields):
    model = random_model({**FIELDS, **fields}, vocab_size, context)
    assert isinstance(model, Encoder)
    return model


@torch.no_grad()
def with_known_logits(encoder, logits, sentence_logits):
    """Let an encoder say the same of every token, and of every pair."""
    assert encoder.head.bias is not None and encoder.sentence_head is not None
    encoder.embedding.weight.zero_()
    encoder.head.bias.copy_(torch.tensor(logits, dtype=torch.float64))
    encoder.sentence_head.weight.zero_()
    encoder.sentence_head.bias.copy_(torch.tensor(sentence_logits, dtype=torch.float64))
    return encoder
