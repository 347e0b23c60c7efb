"""What models are measured by: a row of a suite, asked of one model after another."""

from abc import ABC, abstractmethod

import torch

from sublayer.suite.candidate import Candidate
from sublayer.suite.found import Column, Found


class Measure(ABC):
    """A measure, whose files have been read or are known to be there."""

    columns: tuple[Column, ...]
    """What it fills, as far as that is known before."""
    title: str
    """What is being done, for people."""
    is_timed = False
    """Whether nothing else may run meanwhile."""

    @abstractmethod
    def refusal(self, candidate: Candidate) -> str:
        """Say why a model cannot be measured by its nature; empty where it can.

        Raises a SublayerError for what the user has to mend before anything is computed.
        """

    @abstractmethod
    def score(self, candidate: Candidate, device: torch.device) -> Found:
        """Measure a model. Raises a SublayerError where that turns out to be impossible."""
