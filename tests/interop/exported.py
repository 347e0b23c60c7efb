"""A small model of every kind that is exported as a class of transformers."""

import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from tests.interop.classes import CHOICE, EXPORTED, VOCAB_SIZE

CONTEXT = 8


def task_of(name):
    """Return the task that decides what a model is exported as; None where its head does."""
    return CHOICE if name.endswith("for choices") else None


def resolved(fields, vocab_size=VOCAB_SIZE):
    config = ModelConfig.model_validate(fields)
    context = config.max_len or CONTEXT
    return resolve_model(config, vocab_size=config.vocab_size or vocab_size, context=context)


def config_of(name, **changes):
    return resolved({**EXPORTED[name][1], **changes})


@torch.no_grad()
def with_random_vectors(model, std=0.1):
    """Add noise to biases and norms, which are built as zeros and ones; give the model."""
    generator = torch.Generator().manual_seed(2)
    for each in (parameter for parameter in model.parameters() if parameter.dim() == 1):
        each.add_(torch.empty_like(each).normal_(std=std, generator=generator))
    return model.eval()
