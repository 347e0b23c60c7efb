"""Temporary evaluation mode: a model without dropout."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode; restore its mode at the end, also after errors.

    All parts get the root's mode at the end.
    """
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
