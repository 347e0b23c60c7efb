"""The bias of a head, written into its weights: the classifiers of GPT-1 and GPT-2 have none.

A layer norm's features, before its gains and offsets, add up to zero. So the features of the last
norm, each divided by its gain, add up to the same for every text: to what the offsets, so divided,
add up to. A multiple of that sum is a bias.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from sublayer.errors import ConfigError

_WEIGHT, _BIAS = "label_head.weight", "label_head.bias"
_LEAST_SHARE = 1e-2
"""Of the root of the width: a smaller sum would be lost in the rounding of the features."""


def without_bias(
    weights: Mapping[str, Tensor], norm: str = "final_norm", title: str = "GPT-2"
) -> dict[str, Tensor]:
    """Return weights that compute the same labels with a bias of zeros.

    ``norm`` is the one that the head reads, and no other head. Its offsets change only where they
    add up to too little: then each becomes larger by its gain, of which the head's weights take
    account. Where there is no bias, nothing changes.

    Raises ConfigError where a gain is zero.
    """
    bias = weights[_BIAS].double()
    if not bias.any():
        return dict(weights)
    gain, offset = f"{norm}.weight", f"{norm}.bias"
    gains, offsets, matrix = (weights[name].double() for name in (gain, offset, _WEIGHT))
    shares = 1.0 / gains
    if not shares.isfinite().all():
        raise ConfigError(
            f"{norm} has a gain of zero, so that {title}'s classifier, which has no bias, cannot "
            "have this model's label_head.bias: the model cannot be exported"
        )
    total = (offsets * shares).sum()
    width = len(gains)
    if total.abs() < _LEAST_SHARE * width**0.5:
        offsets = offsets + gains
        bias = bias - matrix @ gains
        total = total + width
    dtype = weights[_WEIGHT].dtype
    return {
        **weights,
        offset: offsets.to(dtype),
        _WEIGHT: (matrix + torch.outer(bias, shares) / total).to(dtype),
        _BIAS: torch.zeros_like(weights[_BIAS]),
    }
