"""Dense bf16 peaks of GPUs as their vendors publish them, for shares of peak.

Names are as ``torch.cuda.get_device_name`` gives them: boards of one name in shops differ by up to
a quarter, so a device that is not listed has no share, rather than that of a relative.
"""

from typing import NamedTuple

from sublayer.estimate.cluster import DEVICES


class Peak(NamedTuple):
    """Operations a second of dense matrix products in bf16, and who says so."""

    flops: float
    source: str


_LISTED = {
    "NVIDIA B200": "b200",
    "NVIDIA H200": "h200",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA A100-SXM4-40GB": "a100-40gb",
    "NVIDIA A100-SXM4-80GB": "a100",
    "NVIDIA L4": "l4",
    "NVIDIA GeForce RTX 4090": "4090",
}
"""Devices of ``plan --device``, by their reported names."""


def peak_of(device_name: str) -> Peak | None:
    """Return the peak of a device by its full name; None where none is listed."""
    name = _LISTED.get(device_name)
    if name is None:
        return None
    return Peak(DEVICES[name].bfloat16_per_s, DEVICES[name].source)
