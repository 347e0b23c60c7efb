"""The memory that this process can have, and how much of it is free, as far as the system says."""

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_OWN_PAGES = Path("/proc/self/statm")
_GROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Where a container's limit stands: limit, use, and of it the cached files, which give way."""


def total_memory() -> int | None:
    """Return the bytes that this process can have at most, swap included; None where no one says.

    That is what is installed or a container's limit, and no more than a limit on addresses (``ulimit -v``) leaves.
    """
    limits = [each for each in (_installed(), *(_number(folder / name) for folder, name, *_ in _GROUPS)) if each]
    if not limits:
        return None
    total = min(limits) + (_meminfo("SwapTotal:") or 0)
    own = _own_limit()
    return total if own is None else min(total, own)


def free_memory() -> int | None:
    """Return the bytes that are free, or all that are installed where no one says how many are; None without either."""
    free = [each for each in (_meminfo("MemAvailable:"), _free_in_group()) if each is not None]
    return min(free) if free else _installed()


def _installed() -> int | None:
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return None  # Windows
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _meminfo(name: str) -> int | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:  # only Linux has it
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(name)), None)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # there is none, or it is "max"
        return None


def _free_in_group() -> int | None:
    for folder, limit_name, used_name, cached_name in _GROUPS:
        limit, used = _number(folder / limit_name), _number(folder / used_name)
        if limit is None or used is None:
            continue
        try:
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            return limit - used + int(stat[cached_name])
        except (OSError, ValueError, KeyError):
            continue
    return None


def _own_limit() -> int | None:
    """Return what a limit on the addresses of this process leaves; None without one."""
    try:
        import resource  # not on Windows

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            return None
        return max(0, limit - int(_OWN_PAGES.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE"))
    except (ImportError, OSError, ValueError):
        return None
