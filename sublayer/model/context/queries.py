"""The queries of an attention where few states are read: at some of the positions of each row."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.model.context.keys import Keys
from sublayer.model.positions.rotation import Rotation


@dataclass(frozen=True)
class Queries:
    """Columns of each row at which there are queries; keys and values are those of all positions.

    Rows with fewer than others are filled up with any, of which nothing is read.
    """

    places: Int[Tensor, "B Q"]

    @property
    def _rows(self) -> Int[Tensor, "B 1"]:
        return torch.arange(len(self.places), device=self.places.device)[:, None]

    def pick(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B Q D"]:
        """Return what stands at them."""
        return x[self._rows, self.places]

    def rotation(self, every: Rotation) -> Rotation:
        """Return their rotation from that of all positions."""
        return Rotation(self._angles(every.cos), self._angles(every.sin))

    def _angles(self, angles: Float[Tensor, "*B T K"]) -> Float[Tensor, "B 1 Q K"]:
        if angles.dim() == 2:
            return angles[self.places][:, None]
        return angles[self._rows, 0, self.places][:, None]

    def keys(self, every: Keys, n_keys: int) -> Keys:
        """Return the keys that they see, of ``n_keys``, from those that all positions see."""
        if every.mask is None:
            if not every.is_causal:
                return every
            indices = torch.arange(n_keys, device=self.places.device)
            return Keys(False, (indices <= self.places[..., None])[:, None])
        if every.mask.shape[2] == 1:
            return Keys(every.is_causal, every.mask)
        return Keys(False, every.mask[self._rows, 0, self.places][:, None])

    def bias(self, every: Float[Tensor, "N H T S"]) -> Float[Tensor, "B H Q S"]:
        """Return the bias of their scores from that of all positions."""
        rows = self._rows if len(every) > 1 else torch.zeros_like(self._rows)
        return every[rows, :, self.places].transpose(1, 2)
