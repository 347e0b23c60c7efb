"""Evaluation mode for a while: a model without dropout, in training or not."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and back into the mode that it was in, errors or not.

    The mode is the root's: a part that had another one comes back in the root's.
    """
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
