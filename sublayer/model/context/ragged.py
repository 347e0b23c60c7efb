"""Sequences of unequal length, as attention without padding takes them."""

from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class Ragged:
    """Where each sequence begins, among the queries and among the keys of all rows.

    Rows lie one behind another, padding too, which is a sequence of its own. A query sees the keys
    of its own sequence alone, or of these the ones up to its own. Behind all starts stands the
    number of queries, or of keys.
    """

    query_starts: Int[Tensor, " N"]
    key_starts: Int[Tensor, " N"]
