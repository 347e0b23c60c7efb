"""Continuations of hypotheses, best or sampled, from a step's logits."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from sublayer.decode.sample import Sampling

_PIECE = 64
"""Scores of which the highest is looked at first."""
_ROWS = 64
"""Rows whose exponentials stay in the cache."""


def top(
    scores: Float[Tensor, "R V"], count: int
) -> tuple[Float[Tensor, "R C"], Int[Tensor, "R C"]]:
    """Return the ``count`` highest scores of each row and their indices; ties in no order.

    Both are ordered from the highest score down; ``count`` is at most V.

    The highest scores lie in the pieces with the highest maxima, so that few pieces are searched,
    which is faster on a CPU.
    """
    n_pieces = scores.shape[1] // _PIECE
    # With few pieces most would be gathered, which saves nothing.
    if n_pieces <= 2 * count:
        best = scores.topk(count, -1)
        return best.values, best.indices
    n_whole = n_pieces * _PIECE
    by_piece = scores[:, :n_whole].view(-1, n_pieces, _PIECE)  # [R, P, piece]
    maxima = by_piece.amax(-1)  # [R, P]
    pieces = maxima.topk(count, -1, sorted=False).indices[:, :, None]  # [R, C, 1]
    index = pieces.expand(-1, -1, _PIECE)
    in_pieces = by_piece.gather(1, index).flatten(1)  # [R, C piece]
    # The incomplete last piece is searched in full.
    rest = scores[:, n_whole:]
    candidates = torch.cat([in_pieces, rest], 1)
    best = candidates.topk(count, -1)  # [R, C]

    device = scores.device
    offsets = torch.arange(_PIECE, device=device)
    piece_ids = (pieces * _PIECE + offsets).flatten(1)  # [R, C piece]
    rest_ids = torch.arange(n_whole, scores.shape[1], device=device)
    ids = torch.cat([piece_ids, rest_ids.expand(len(scores), -1)], 1)
    best_ids = ids.gather(1, best.indices)  # [R, C]
    return best.values, best_ids


def log_sum_exp(logits: Float[Tensor, "R V"]) -> Float[Tensor, "R 1"]:
    """Compute ``logsumexp`` of each row, on a CPU faster than the native one.

    In the dtype of the logits. Departure from the native one: a row of only minus infinity gives
    NaN, not minus infinity.
    """
    # The largest share is 1 / sum(exp(logit - largest logit)).
    parts = torch.split(logits, _ROWS)
    by_part = [part.softmax(-1).amax(-1, keepdim=True) for part in parts]
    largest_shares = torch.cat(by_part)  # [R, 1]
    largest_logits = logits.amax(-1, keepdim=True)
    return largest_logits - largest_shares.log()


@dataclass(frozen=True)
class Continuations:
    """Continuations of each slot, best first; all fields are ``[N, C]``."""

    log_p: NDArray[np.floating]
    """The natural log-probability of the whole hypothesis; minus infinity where there is none."""
    origins: NDArray[np.int64]
    """The hypothesis that each continues."""
    tokens: NDArray[np.int64]

    def take(self, order: NDArray[np.int64]) -> "Continuations":
        """Select continuations of each slot by their indices ``[N, beam]``."""
        return Continuations(
            np.take_along_axis(self.log_p, order, 1),
            np.take_along_axis(self.origins, order, 1),
            np.take_along_axis(self.tokens, order, 1),
        )


def best_continuations(
    logits: Float[Tensor, "R V"], partition: Float[Tensor, "R 1"], log_p: Float[Tensor, "N beam"]
) -> Continuations:
    """Select the best ``2 * beam`` continuations of each slot.

    ``partition`` is the log of the partition function of each row, ``log_p`` the log-probability of
    each hypothesis so far, in nats. Rows are ``N * beam``, slot by slot; forbidden tokens have a
    logit of minus infinity. C is ``2 * beam``, or ``beam * V`` where that is less.
    """
    n_slots, beam = log_p.shape
    width = min(2 * beam, logits.shape[1])
    values, token_ids = top(logits, width)  # [R, W] each
    log_p_of_tokens = (values - partition).view(n_slots, beam, width)
    continued = log_p_of_tokens + log_p[:, :, None]  # [N, beam, W]
    n_best = min(2 * beam, beam * width)
    best = continued.view(n_slots, -1).topk(n_best, -1)  # [N, C]
    by_slot = token_ids.view(n_slots, -1)  # [N, beam W]
    tokens = by_slot.gather(1, best.indices)
    origins = best.indices // width
    return Continuations(
        log_p=best.values.cpu().numpy(),
        origins=origins.cpu().numpy(),
        tokens=tokens.cpu().numpy(),
    )


Continue = Callable[[Tensor, Tensor, Tensor], Continuations]
"""Selects continuations from the arguments of ``best_continuations``."""


class DrawnContinuations:
    """Sample a continuation of each slot's only hypothesis; depends on the calls before.

    ``log_p`` is the model's, before temperature and truncation. Called as ``best_continuations``,
    with a beam of 1. Unused slots sample nothing.
    """

    def __init__(self, sampling: Sampling, seed: int, device: torch.device) -> None:
        self._sampling = sampling
        self._generator = torch.Generator(device=device).manual_seed(seed)

    def __call__(
        self,
        logits: Float[Tensor, "N V"],
        partition: Float[Tensor, "N 1"],
        log_p: Float[Tensor, "N 1"],
    ) -> Continuations:
        """Sample a token for each slot, ``[N, 1]``."""
        assert log_p.shape[1] == 1, "only one hypothesis of each slot is drawn"
        in_use = log_p[:, 0].isfinite()
        tokens = torch.zeros_like(log_p, dtype=torch.long)  # [N, 1]
        tokens[in_use, 0] = self._sampling.choose(logits[in_use], self._generator)
        continued = log_p + logits.gather(1, tokens) - partition
        continued = continued.masked_fill(~in_use[:, None], -torch.inf)
        return Continuations(
            log_p=continued.cpu().numpy(),
            origins=np.zeros(tokens.shape, dtype=np.int64),
            tokens=tokens.cpu().numpy(),
        )
