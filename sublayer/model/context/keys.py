"""Masks of keys as attention takes them: those that ``layout.py`` makes, or a step's."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sublayer.model.context.ragged import Ragged


@dataclass(frozen=True)
class Keys:
    """The keys that the queries of a pass see.

    Under ``is_causal`` the last query sees every key, each earlier one a key less. ``mask`` is True
    where a query may attend to a key and is complete: it contains causality; one row of it stands
    for all queries. None masks nothing beyond ``is_causal``. ``ragged`` says what the mask says by
    where sequences begin, for kernels that take that; None where it is not known.
    """

    is_causal: bool
    mask: Bool[Tensor, "B 1 T S"] | Bool[Tensor, "B 1 1 S"] | None
    ragged: Ragged | None = None


@dataclass(frozen=True)
class StepKeys:
    """The keys that the queries of a decoding step see: all, or those not hidden.

    ``hidden`` is added to scores: minus infinity at what is hidden. A step has one query for each
    head of each row, or for each hypothesis; leading axes may be folded into one.
    """

    hidden: Float[Tensor, "N 1 T S"] | None = None

    @classmethod
    def hiding(cls, hidden: Bool[Tensor, "N T S"], dtype: torch.dtype) -> "StepKeys":
        """Hide the keys at which ``hidden`` is True; ``dtype`` is that of the scores."""
        scores = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        return cls(scores.masked_fill_(hidden, -torch.inf)[:, None])
