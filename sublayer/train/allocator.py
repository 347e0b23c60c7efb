"""The C library's allocator, which a step on a CPU asks for the same large blocks again and again."""

import ctypes
import sys

from sublayer.config.train import TrainConfig

# Parameters of mallopt, from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
_DEFAULT_THRESHOLD, _DEFAULT_MMAP_MAX = 1 << 17, 1 << 16


def allocate_for(train: TrainConfig) -> None:
    """Arrange for a run on a CPU to be fast, or to hold little where its blocks are computed again for that."""
    if train.recompute == "none":
        keep_freed_memory()
    else:
        return_freed_memory()


def keep_freed_memory() -> None:
    """Keep what is freed for the next step instead of giving it back to the system, where glibc allocates.

    By default every large block goes back at once, and a page fault for each 4 KiB of the next one is 8 to 17 % of a
    step's time, measured at widths of 256 and 512.
    """
    if (mallopt := _find("mallopt")) is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def return_freed_memory() -> None:
    """Give every large block that is freed back to the system at once, where glibc allocates: slower, without holes."""
    if (mallopt := _find("mallopt")) is not None:
        mallopt(_M_MMAP_MAX, _DEFAULT_MMAP_MAX)
        mallopt(_M_MMAP_THRESHOLD, _DEFAULT_THRESHOLD)  # fixed: by default it rises to the largest block freed
        mallopt(_M_TRIM_THRESHOLD, _DEFAULT_THRESHOLD)


def release_freed_memory() -> None:
    """Give what is freed back to the system, so that what is resident is what is in use, where glibc allocates."""
    if (malloc_trim := _find("malloc_trim")) is not None:
        malloc_trim(0)


def _find(name: str) -> "ctypes._NamedFuncPointer | None":
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
