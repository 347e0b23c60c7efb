"""The peak memory of a stretch of work, as the system or the GPU accounts for it."""

from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from sublayer.system.allocator import release_freed_memory

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class PeakMemory:
    """While entered, measures how much memory is used beyond what was resident at the start.

    On a CPU it is the process's resident set (Linux; ``bytes`` is None elsewhere), on a GPU the
    allocator's.
    """

    def __init__(self, device: torch.device) -> None:
        self.bytes: int | None = None
        self._device = device
        self._before: int | None = None

    def __enter__(self) -> Self:
        """Start measuring."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)
            return self
        release_freed_memory()
        try:
            _CLEAR.write_text("5")  # resets VmHWM, the peak of the resident set
        except OSError:
            return self
        self._before = _resident("VmRSS")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop measuring: ``bytes`` is there."""
        if self._device.type == "cuda":
            peak: int | None = torch.cuda.max_memory_allocated(self._device)
        else:
            peak = _resident("VmHWM")
        if peak is not None and self._before is not None:
            self.bytes = max(0, peak - self._before)


def _resident(name: str) -> int | None:
    """Return a line of this process's status, in bytes."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:  # only Linux has it
        return None
    for line in lines:
        if line.startswith(f"{name}:"):
            _, kibibytes, *_ = line.split()
            return int(kibibytes) * 1024
    return None
