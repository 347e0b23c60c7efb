"""Whether this machine can hold at all what is about to be made, asked before anything is allocated.

What fits tightly, or only by swapping, is let through; what cannot fit is refused in one line.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sublayer.errors import ConfigError

_MEMINFO = Path("/proc/meminfo")
_OWN_PAGES = Path("/proc/self/statm")
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where a container's limit stands."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_MARKS = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "Storage size calculation overflowed",
    "integer multiplication overflow",
    "could not create a memory",
    "could not create a primitive",
    "could not construct a memory descriptor",
    "Unable to allocate",
)
"""How torch, oneDNN and numpy say that memory is lacking: they have no one class for it."""


def total_memory() -> int | None:
    """Return the bytes of memory that this process can have at most, swap included; None where no one says."""
    names = getattr(os, "sysconf_names", {})
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if "SC_PHYS_PAGES" in names else None
    limits = [each for each in (installed, *map(_limit, _LIMITS)) if each is not None]
    if not limits:
        return None
    ours = _own_limit()
    return min(limits) + _swap() if ours is None else min(min(limits) + _swap(), ours)


def check_memory(needed: int, what: str, remedy: str) -> None:
    """Raise ConfigError, in a line with both sizes, where ``needed`` bytes are more than this machine has."""
    here = total_memory()
    if here is not None and needed > here:
        raise ConfigError(f"{what} needs {format_bytes(needed)}, {format_bytes(here)} here: {remedy}")


@contextmanager
def allocating(what: str, remedy: str) -> Iterator[None]:
    """Turn a failure to allocate into a ConfigError that says for what, where no estimate could tell before."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        raise ConfigError(f"there is not enough memory for {what}: {remedy}") from error


def lacks_memory(error: BaseException) -> bool:
    """Tell whether an error says that memory is lacking."""
    return isinstance(error, MemoryError) or any(mark in str(error) for mark in _MARKS)


def format_bytes(size: int) -> str:
    """Write a size with three figures in the unit that suits it: ``14.6 TiB``."""
    power = min(len(_UNITS) - 1, max(0, (size.bit_length() - 1) // 10))
    return f"{size / 1024**power:,.3g} {_UNITS[power]}" if size < 1 << 70 else f"{size >> 60:,} EiB"


def _limit(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # there is none, or it is "max"
        return None


def _swap() -> int:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("SwapTotal:")), 0)


def _own_limit() -> int | None:
    """Return what a limit on the addresses of this process (``ulimit -v``) leaves; None without one."""
    try:
        import resource  # not on Windows

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            return None
        return max(0, limit - int(_OWN_PAGES.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE"))
    except (ImportError, OSError, ValueError):
        return None
