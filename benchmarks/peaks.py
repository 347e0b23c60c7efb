"""What a GPU's vendor publishes as its dense bf16 peak, by which a share of peak is told.

Names are as ``torch.cuda.get_device_name`` gives them: boards of one name in shops differ by up to
a quarter, so a device that is not listed has no share, rather than that of a relative. A vendor's
figure with sparsity is halved.
"""

from typing import NamedTuple


class Peak(NamedTuple):
    """Operations a second of dense matrix products in bf16, and who says so."""

    flops: float
    source: str


_HOPPER = "NVIDIA H100 Tensor Core GPU Architecture, table 2 (SXM5)"
_H200 = "NVIDIA H200 Tensor Core GPU datasheet, half of what is given with sparsity"
_H100 = "NVIDIA H100 Tensor Core GPU datasheet, half of what is given with sparsity"
_A100 = "NVIDIA A100 Tensor Core GPU datasheet"

PEAKS = {
    "NVIDIA H200": Peak(989.5e12, _H200),
    "NVIDIA H200 NVL": Peak(835.5e12, _H200),
    "NVIDIA H100 80GB HBM3": Peak(989.4e12, _HOPPER),
    "NVIDIA H100 PCIe": Peak(756.5e12, _H100),
    "NVIDIA H100 NVL": Peak(835.5e12, _H100),
    "NVIDIA A100-SXM4-40GB": Peak(312e12, _A100),
    "NVIDIA A100-SXM4-80GB": Peak(312e12, _A100),
    "NVIDIA A100-PCIE-40GB": Peak(312e12, _A100),
    "NVIDIA A100 80GB PCIe": Peak(312e12, _A100),
    "NVIDIA L40S": Peak(362.05e12, "NVIDIA L40S datasheet, without sparsity"),
    "NVIDIA L4": Peak(121e12, "NVIDIA L4 datasheet, half of what is given with sparsity"),
    "NVIDIA GeForce RTX 4090": Peak(165.2e12, "NVIDIA Ada GPU Architecture, appendix A"),
}


def peak_of(device_name: str) -> Peak | None:
    """Return the peak of a device by its full name; None where none is listed."""
    return PEAKS.get(device_name)
