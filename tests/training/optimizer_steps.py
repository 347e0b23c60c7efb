"""Parameters and gradients drawn for the tests of optimizers, and a step of one."""

import torch
from torch import nn


def draw(shapes, seed=0, scale=1.0):
    """Draw a tensor of each shape, by name."""
    generator = torch.Generator().manual_seed(seed)
    return {name: scale * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def own(tensors):
    """Make parameters of copies."""
    return {name: nn.Parameter(value.clone()) for name, value in tensors.items()}


def take(optimizer, parameters, gradients):
    """Take a step with these gradients; a parameter without one has none."""
    for name, parameter in parameters.items():
        parameter.grad = gradients.get(name)
    optimizer.step()
