"""The memory that this process can have, and how much of it is free, as far as the system says."""

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_OWN_PAGES = Path("/proc/self/statm")
_GROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    (
        Path("/sys/fs/cgroup/memory"),
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)
"""Where a container's limit stands: limit, use, and of it the cached files, which give way."""


def total_memory() -> int | None:
    """Return the bytes that this process can have at most, swap included; None where no one says.

    That is what is installed or a container's limit, and no more than a limit on addresses
    (``ulimit -v``) leaves.
    """
    limits = [_installed()]
    for folder, limit_name, _, _ in _GROUPS:
        limits.append(_number(folder / limit_name))
    known = [limit for limit in limits if limit]
    if not known:
        return None
    swap = _meminfo("SwapTotal:") or 0
    total = min(known) + swap
    own = _own_limit()
    return total if own is None else min(total, own)


def free_memory() -> int | None:
    """Return the free bytes, or all that are installed where that is unknown; else None."""
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
    for line in lines:
        if line.startswith(name):
            _, kibibytes, *_ = line.split()
            return int(kibibytes) << 10
    return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # there is none, or it is "max"
        return None


def _free_in_group() -> int | None:
    for folder, limit_name, used_name, cached_name in _GROUPS:
        limit = _number(folder / limit_name)
        used = _number(folder / used_name)
        if limit is None or used is None:
            continue
        try:
            lines = (folder / "memory.stat").read_text().splitlines()
            stat = dict(line.split() for line in lines)
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
        n_pages, *_ = _OWN_PAGES.read_text().split()
        used = int(n_pages) * os.sysconf("SC_PAGE_SIZE")
        return max(0, limit - used)
    except (ImportError, OSError, ValueError):
        return None
