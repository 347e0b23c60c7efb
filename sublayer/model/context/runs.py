"""The real tokens of each document of a batch, as sequences that a recurrent layer reads."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class Packing(NamedTuple):
    """Sequences as PyTorch packs them: their first tokens, the longest one's first, then the next.

    Source: ``torch.nn.utils.rnn.PackedSequence``; made without rows that are filled up, so that
    what is computed goes by the real tokens alone.
    """

    tokens: Int[Tensor, " N"]
    """Where each real token stands among all of the batch, in that order."""
    batch_sizes: Int[Tensor, " L"]
    """How many sequences have a first token, a second and so on; on the CPU, as PyTorch asks."""
    sequences: Int[Tensor, " S"]
    """The number of each sequence that has a token, the longest first; rows, without documents."""


@dataclass(frozen=True)
class Runs:
    """Which tokens are real, and where documents begin; the first column begins one of each row."""

    is_real: Bool[Tensor, "B T"]
    starts: Bool[Tensor, "B T"]
    offsets: Int[Tensor, "B T"]
    """Of real tokens how many of their document are before them."""

    @cached_property
    def is_one_a_row(self) -> bool:
        """Whether each row is one document from its first column on, with padding behind alone."""
        further = self.is_real[:, 1:]
        breaks = further & (self.starts[:, 1:] | ~self.is_real[:, :-1])
        return not bool(breaks.any())

    @cached_property
    def real_share(self) -> float:
        """Return the share of tokens that are real."""
        return float(self.is_real.float().mean())

    def packing(self) -> Packing:
        """Compute the order in which the real tokens are read."""
        begins = self.starts.clone()
        begins[:, 0] = True
        numbers = begins.flatten().cumsum(0) - 1  # [B T], of each token's sequence
        places = self.is_real.flatten().nonzero()[:, 0]  # [N]
        of_real = numbers[places]
        offsets = self.offsets.flatten()[places]
        n_sequences = int(numbers[-1]) + 1
        lengths = torch.bincount(of_real, minlength=n_sequences)
        order = lengths.argsort(descending=True, stable=True)  # [S]
        ranks = torch.empty_like(order)
        ranks[order] = torch.arange(n_sequences, device=order.device)
        order_of_tokens = (offsets * n_sequences + ranks[of_real]).argsort()
        batch_sizes = torch.bincount(offsets).cpu()
        n_real = int((lengths > 0).sum())
        return Packing(places[order_of_tokens], batch_sizes, order[:n_real])
