"""The rows of tables that a model takes over from another: tokens added, positions cut."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from sublayer.config.architecture import POSITIONS
from sublayer.counts import count
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError
from sublayer.model.transformer import Transformer

TOKEN_TABLES = ("embedding.weight", "head.weight", "head.bias")
"""The tensors with a row for each id of a vocabulary."""
_POSITION_TABLE = "positions.tables."
"""What the name of each table with a row for each position has."""


def fit_rows(
    tensors: Mapping[str, Tensor],
    targets: Mapping[str, Tensor],
    new_ids: range,
    where: Path,
) -> dict[str, Tensor]:
    """Return a model's ``tensors`` with as many rows of tokens and positions as ``targets`` have.

    Rows stay at their ids. What a table lacks, and the rows of ``new_ids``, are those that the
    target has; positions beyond the target's are left out. All else is returned as it is.

    Raises CheckpointError where the target has more positions than were learned.
    """
    fitted = dict(tensors)
    for name, value in tensors.items():
        if name not in targets:
            continue
        target = targets[name]
        if name in TOKEN_TABLES:
            fitted[name] = _with_token_rows(value, target, new_ids)
        elif _POSITION_TABLE in name:
            fitted[name] = _first_positions(value, len(target), where)
    return fitted


def added_ids(tokenizer: Tokenizer | None, known: Tokenizer | None) -> range:
    """Return the ids that a tokenizer has behind those of the one that a model was trained with."""
    if tokenizer is None or known is None:
        return range(0)
    return range(known.vocab_size, max(known.vocab_size, tokenizer.vocab_size))


def describe_added(
    model: Transformer, source: Transformer, tokenizer: Tokenizer | None, new_ids: range
) -> list[str]:
    """Say which tokens of a model have rows of their own that its start has not."""
    if not new_ids:
        n_added = model.config.vocab_size - source.config.vocab_size
        return [f"{count(n_added, 'row')} of the embedding matrix"] if n_added > 0 else []
    assert tokenizer is not None, "the ids are the tokenizer's"
    names = [name for name, number in tokenizer.added_ids.items() if number in new_ids]
    return [f"{count(len(new_ids), 'token')} added to the vocabulary ({', '.join(names)})"]


def describe_cut(model: Transformer, source: Transformer, run: str) -> list[str]:
    """Say that a model has fewer learned positions than its start."""
    kept, learned = model.config.max_len, source.config.max_len
    if not POSITIONS[model.config.positions].has_rows or kept >= learned:
        return []
    return [f"keeps the first {kept:,} of the {learned:,} positions that {run} has learned"]


def _with_token_rows(value: Tensor, target: Tensor, new_ids: range) -> Tensor:
    if value.shape[1:] != target.shape[1:] or len(value) > len(target):
        return value  # another width, or ids without rows: refused where it is loaded
    rows = target.detach().clone()
    rows[: len(value)] = value
    fresh = torch.arange(new_ids.start, new_ids.stop)
    rows[fresh] = target.detach()[fresh]
    return rows


def _first_positions(value: Tensor, n_positions: int, where: Path) -> Tensor:
    if n_positions > len(value):
        raise CheckpointError(
            f"{where} has learned {len(value):,} positions, and {n_positions:,} are asked for: "
            f"give data.context={len(value)}"
        )
    return value[:n_positions]
