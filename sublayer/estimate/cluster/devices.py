"""Devices as their vendors state them: memory, peak speeds, and how they are linked."""

from dataclasses import dataclass

from sublayer.errors import ConfigError
from sublayer.estimate.micro_batch import Precision
from sublayer.nearest import nearest_hint

_GB = 10**9
_TERA = 10**12


@dataclass(frozen=True)
class Device:
    """A device that computes one process's part.

    Rates are those of datasheets, which no program reaches: dense ones, not those of half-empty
    matrices. Links are one way, half of what datasheets add up.
    """

    title: str
    memory_bytes: int
    """By 10**9, as it is sold; a driver may leave some more or less of it."""
    bfloat16_per_s: float
    """Floating-point operations of matrix products."""
    float32_per_s: float
    """The same without TF32, which PyTorch leaves off and nothing here switches on."""
    memory_bytes_per_s: float
    link_bytes_per_s: float
    """One way, between devices of one machine."""
    link: str
    per_machine: int
    """Devices that such links join."""
    source: str

    def peak(self, precision: Precision) -> float:
        """Return the most operations of matrix products in a second."""
        return self.bfloat16_per_s if precision == "bfloat16" else self.float32_per_s


def _device(
    title: str,
    memory_gb: int,
    bfloat16: float,
    float32: float,
    bandwidth_gb: float,
    link: tuple[str, float, int],
    source: str,
) -> Device:
    """Return a device from the units of datasheets: GB, teraflops, GB a second one way."""
    name, link_gb, per_machine = link
    return Device(
        title,
        memory_bytes=memory_gb * _GB,
        bfloat16_per_s=bfloat16 * _TERA,
        float32_per_s=float32 * _TERA,
        memory_bytes_per_s=bandwidth_gb * _GB,
        link_bytes_per_s=link_gb * _GB,
        link=name,
        per_machine=per_machine,
        source=source,
    )


_NVLINK_3 = ("NVLink 3", 300, 8)
_NVLINK_4 = ("NVLink 4", 450, 8)
_NVLINK_5 = ("NVLink 5", 900, 8)
_PCIE_4 = ("PCIe 4.0 x16", 32, 8)
_PCIE_4_BY_HOST = ("PCIe 4.0 x16, through the host's memory, which takes more time", 32, 8)
_QUOTED = "as quoted at glennklockwood.com/garden/processors"
_A100 = f"NVIDIA A100 datasheet and Ampere white paper, {_QUOTED}/A100"

DEVICES = {
    "b200": _device(
        "NVIDIA B200 (HGX)",
        *(180, 2250, 75, 7700, _NVLINK_5),
        "NVIDIA Blackwell datasheet, HGX B200 (half of 4,500 teraflops with sparsity), as quoted "
        "at zdszero.github.io/Computer/Artificial_Intelligence/Hardware.html",
    ),
    "h200": _device(
        "NVIDIA H200 SXM",
        *(141, 989.4, 66.9, 4800, _NVLINK_4),
        f"NVIDIA H200 datasheet, as quoted at aiwiki.ai/wiki/nvidia_h200; operations: {_QUOTED}"
        "/h100",
    ),
    "h100": _device(
        "NVIDIA H100 SXM",
        *(80, 989.4, 66.9, 3350, _NVLINK_4),
        f"NVIDIA H100 datasheet and Hopper white paper, {_QUOTED}/h100",
    ),
    "a100": _device("NVIDIA A100 SXM, 80 GB", 80, 312, 19.5, 2039, _NVLINK_3, _A100),
    "a100-40gb": _device("NVIDIA A100 SXM, 40 GB", 40, 312, 19.5, 1555, _NVLINK_3, _A100),
    "4090": _device(
        "NVIDIA GeForce RTX 4090",
        *(24, 165.2, 82.6, 1008, _PCIE_4_BY_HOST),
        "NVIDIA Ada white paper, as quoted at waredb.com/processor/nvidia-geforce-rtx-4090",
    ),
    "l4": _device(
        "NVIDIA L4",
        *(24, 121, 30.3, 300, _PCIE_4),
        "NVIDIA L4 datasheet (half of 242 teraflops with sparsity), as quoted at "
        "grokipedia.com/page/NVIDIA_L4_vs_L40S; float32: fpsbench.com",
    ),
}
"""Devices by the name that ``plan --device`` takes."""

THIS_MACHINE = "cpu"
"""Processes of this machine's processor, of which no table knows anything."""


def is_listed(name: str | None) -> bool:
    """Return whether a name is one of the table's."""
    return name in DEVICES


def check_device(name: str) -> None:
    """Raise ConfigError, with the nearest name, for what is neither of the table nor ``cpu``."""
    known = (*DEVICES, THIS_MACHINE)
    if name not in known:
        raise ConfigError(
            f"device {name!r} is not one of cpu, cuda, cuda:1 and so on, {', '.join(DEVICES)}"
            f"{nearest_hint(name, known)}"
        )
