"""The bias of a head, written into its weights: GPT-2's classifier has none.

A layer norm's features, before its gains and offsets, add up to zero. So the features of the final
norm, each divided by its gain, add up to the same for every text: to what the offsets, so divided,
add up to. A multiple of that sum is a bias.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from sublayer.errors import ConfigError

_GAIN, _OFFSET = "final_norm.weight", "final_norm.bias"
_WEIGHT, _BIAS = "label_head.weight", "label_head.bias"
_LEAST_SHARE = 1e-2
"""Of the root of the width: a smaller sum would be lost in the rounding of the features."""


def without_bias(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights that compute the same labels with a bias of zeros.

    The final norm's offsets change only where they add up to too little: then each becomes larger
    by its gain, of which the head's weights take account. Where there is no bias, nothing changes.

    Raises ConfigError where a gain is zero.
    """
    bias = weights[_BIAS].double()
    if not bias.any():
        return dict(weights)
    gains, offsets, matrix = (weights[name].double() for name in (_GAIN, _OFFSET, _WEIGHT))
    shares = 1.0 / gains
    if not shares.isfinite().all():
        raise ConfigError(
            "final_norm has a gain of zero, so that GPT-2's classifier, which has no bias, cannot "
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
        _OFFSET: offsets.to(dtype),
        _WEIGHT: (matrix + torch.outer(bias, shares) / total).to(dtype),
        _BIAS: torch.zeros_like(weights[_BIAS]),
    }
