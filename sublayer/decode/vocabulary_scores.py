"""Top-k and log-sum-exp over a vocabulary, faster on a CPU than the native operations."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

_PIECE = 64
"""Scores of which the highest is looked at first."""
_ROWS = 64
"""Rows whose exponentials stay in the cache."""


def top(
    scores: Float[Tensor, "R V"], count: int
) -> tuple[Float[Tensor, "R C"], Int[Tensor, "R C"]]:
    """Return the ``count`` highest scores of each row and their indices; ties in no order.

    Both are ordered from the highest score down; ``count`` is at most V.

    The highest stand in the pieces of highest maximum, so that few pieces are searched: on a CPU
    that is faster.
    """
    n_pieces = scores.shape[1] // _PIECE
    # Of few pieces the most would be gathered, and nothing saved.
    if n_pieces <= 2 * count:
        best = scores.topk(count, -1)
        return best.values, best.indices
    n_whole = n_pieces * _PIECE
    by_piece = scores[:, :n_whole].view(-1, n_pieces, _PIECE)  # [R, P, piece]
    maxima = by_piece.amax(-1)  # [R, P]
    pieces = maxima.topk(count, -1, sorted=False).indices[:, :, None]  # [R, C, 1]
    index = pieces.expand(-1, -1, _PIECE)
    in_pieces = by_piece.gather(1, index).flatten(1)  # [R, C piece]
    # Behind the last whole piece stand fewer scores than a piece has: all are looked at.
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
    """Compute ``logsumexp`` of each row: on a CPU faster than the native one.

    In the type of the logits. Departure from the native one: a row of minus infinity alone gives
    what is not a number, not minus infinity.
    """
    # The largest share is 1 / sum(exp(logit - largest logit)).
    parts = torch.split(logits, _ROWS)
    by_part = [part.softmax(-1).amax(-1, keepdim=True) for part in parts]
    largest_shares = torch.cat(by_part)  # [R, 1]
    largest_logits = logits.amax(-1, keepdim=True)
    return largest_logits - largest_shares.log()
