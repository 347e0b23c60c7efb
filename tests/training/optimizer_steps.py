"""Parameters and gradients drawn for the tests of optimizers, and a step of one."""

import torch
from torch import nn

SHAPES = {"matrix": (5, 7), "stacked": (2, 6, 5), "embedding": (11, 4), "vector": (3, 13)}
"""Of each role one, of its name."""
ROLES = {name: name for name in SHAPES}


def draw(shapes, seed=0, scale=1.0):
    """Draw a tensor of each shape, by name."""
    generator = torch.Generator().manual_seed(seed)
    return {name: scale * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def trainable(tensors):
    """Make parameters of copies."""
    return {name: nn.Parameter(value.detach().clone()) for name, value in tensors.items()}


def take(optimizer, parameters, gradients):
    """Take a step with these gradients; a parameter without one has none."""
    for name, parameter in parameters.items():
        parameter.grad = gradients.get(name)
    optimizer.step()
