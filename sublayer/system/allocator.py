"""The C library's memory allocator, tuned for training steps that repeat large allocations."""

import ctypes
import sys

# Parameters of mallopt, from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
_DEFAULT_THRESHOLD, _DEFAULT_MMAP_MAX = 1 << 17, 1 << 16


def allocate_for_training(*, recomputes: bool, is_divided: bool = False) -> None:
    """Tune the allocator for a run on a CPU: for speed, or for memory.

    For memory where blocks are recomputed, and where each process has a part of the model: weights
    that come and go leave more holes than parts save.
    """
    if recomputes or is_divided:
        return_freed_memory()
    else:
        keep_freed_memory()


def keep_freed_memory() -> None:
    """Keep freed memory for the next step, where glibc allocates.

    By default every large block goes back at once, and a page fault for each 4 KiB of the next one
    is 8 to 17 % of a step's time, measured at widths of 256 and 512.
    """
    if (mallopt := _find("mallopt")) is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def return_freed_memory() -> None:
    """Return every large freed block to the system at once, where glibc allocates.

    This is slower, but without fragmentation.
    """
    if (mallopt := _find("mallopt")) is not None:
        mallopt(_M_MMAP_MAX, _DEFAULT_MMAP_MAX)
        # Fixed: by default it rises to the largest block freed.
        mallopt(_M_MMAP_THRESHOLD, _DEFAULT_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _DEFAULT_THRESHOLD)


def release_freed_memory() -> None:
    """Return freed memory to the system, so that what is resident is in use; glibc alone."""
    if (malloc_trim := _find("malloc_trim")) is not None:
        malloc_trim(0)


def _find(name: str) -> "ctypes._NamedFuncPointer | None":
    if sys.platform != "linux":
        return None
    # None loads the program itself, and with it the C library that it uses.
    library = ctypes.CDLL(None)
    return getattr(library, name, None)
