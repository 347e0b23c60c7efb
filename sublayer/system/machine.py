"""This machine: cores, memory and its allocator, device, processor, description for records.

Requests of memory that fit tightly, or only by swapping, pass; impossible ones are refused in one
line, before anything is allocated. PyTorch is imported where a device is asked for.
"""

import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sublayer.errors import ConfigError
from sublayer.system.processes import n_launched, own_gpu_number

if TYPE_CHECKING:
    import torch

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
"""Files of a container's limit: limit, use, and of it the cached files, which give way."""
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
"""Messages of torch, oneDNN and numpy on lack of memory: they have no one class for it."""
# Parameters of mallopt, from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
_DEFAULT_THRESHOLD, _DEFAULT_MMAP_MAX = 1 << 17, 1 << 16


def total_memory() -> int | None:
    """Return the maximum bytes of this process, swap included; None where unknown.

    The installed memory or a container's limit, at most what ``ulimit -v`` leaves.
    """
    limits = [_installed(), *(_number(folder / limit) for folder, limit, _, _ in _GROUPS)]
    bounds = [limit for limit in limits if limit]
    if not bounds:
        return None
    total = min(bounds) + (_meminfo("SwapTotal:") or 0)
    ulimit = _own_limit()
    return total if ulimit is None else min(total, ulimit)


def free_memory() -> int | None:
    """Return the free bytes, or the installed ones where unknown; else None."""
    free = [_meminfo("MemAvailable:")]
    for folder, limit_name, used_name, cached_name in _GROUPS:
        limit, used = _number(folder / limit_name), _number(folder / used_name)
        with suppress(OSError, ValueError, KeyError):
            lines = (folder / "memory.stat").read_text().splitlines()
            cached = int(dict(line.split() for line in lines)[cached_name])
            if limit is not None and used is not None:
                free.append(limit - used + cached)
                break
    return min((size for size in free if size is not None), default=_installed())


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


def _own_limit() -> int | None:
    """Return the bytes left under this process's address limit; None without one."""
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


def check_memory(needed: int, what: str, remedy: str) -> None:
    """Raise ConfigError, with both sizes, where ``needed`` bytes exceed the machine's memory.

    ``what`` is the error's subject, ``remedy`` an imperative. Passes where memory is unknown.
    """
    here = total_memory()
    if here is not None and needed > here:
        raise ConfigError(
            f"{what} needs {format_bytes(needed)}, {format_bytes(here)} here: {remedy}"
        )


@contextmanager
def allocating(what: str, remedy: str) -> Iterator[None]:
    """Convert an allocation failure into a ConfigError.

    ``what`` and ``remedy`` as in ``check_memory``. Other errors pass.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        raise ConfigError(f"there is not enough memory for {what}: {remedy}") from error


def lacks_memory(error: BaseException) -> bool:
    """Check whether an error reports a lack of memory, by class or message."""
    if isinstance(error, MemoryError):
        return True
    # oneDNN's message for unsupported products, such as of two dtypes, is almost the same.
    text = str(error).replace("could not create a primitive descriptor", "")
    return any(mark in text for mark in _MARKS)


def format_bytes(size: int) -> str:
    """Format a size in bytes with three digits and a suitable unit: ``14.6 TiB``.

    Units are powers of 1024; from 1,024 EiB on it counts whole EiB.
    """
    if size >= 1 << 70:
        return f"{size >> 60:,} EiB"
    power = max(0, (size.bit_length() - 1) // 10)
    return f"{size / 1024**power:,.3g} {_UNITS[power]}"


def allocate_for_training(*, recomputes: bool, is_divided: bool = False) -> None:
    """Tune the allocator for a run on a CPU: for speed, or for memory.

    For memory under recomputation, and under sharding: gathered weights fragment memory more than
    shards save.
    """
    if recomputes or is_divided:
        return_freed_memory()
    else:
        keep_freed_memory()


def keep_freed_memory() -> None:
    """Keep freed memory for the next step, where glibc allocates.

    By default large blocks are returned at once; page faults of the next ones take 8 to 17 % of a
    step's time, measured at widths of 256 and 512.
    """
    _call_glibc("mallopt", (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1))


def return_freed_memory() -> None:
    """Return every large freed block to the system at once, where glibc allocates.

    Slower, but without fragmentation.
    """
    _call_glibc(
        "mallopt",
        (_M_MMAP_MAX, _DEFAULT_MMAP_MAX),
        # Fixed: by default it rises to the largest block freed.
        (_M_MMAP_THRESHOLD, _DEFAULT_THRESHOLD),
        (_M_TRIM_THRESHOLD, _DEFAULT_THRESHOLD),
    )


def release_freed_memory() -> None:
    """Return freed memory to the system, so that resident memory is memory in use; glibc only."""
    _call_glibc("malloc_trim", (0,))


def _call_glibc(name: str, *calls: tuple[int, ...]) -> None:
    """Call a function of glibc's allocator, if there, once per arguments."""
    if sys.platform == "linux":
        import ctypes

        # None loads the program itself, with its C library.
        function = getattr(ctypes.CDLL(None), name, None)
        if function is not None:
            for arguments in calls:
                function(*arguments)


def cores() -> int:
    """Count the processor cores that this process may use.

    A container's CPU quota (``docker --cpus``) is ignored.
    """
    if hasattr(os, "sched_getaffinity"):
        allowed = os.sched_getaffinity(0)
        return len(allowed)
    return os.cpu_count() or 1


_CPUINFO = Path("/proc/cpuinfo")


def choose_device(name: str | None) -> "torch.device":
    """Return the named device, by default a CUDA GPU, else the CPU.

    A launched process uses the GPU of its local rank, unless one is named by number. Apple's GPU
    (mps) is used only by name, since nothing has been measured on it. Raises ConfigError for a
    missing device.
    """
    import torch

    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and n_launched() > 1:
        name = f"cuda:{own_gpu_number()}"
    return check_device(name)


def check_device(name: "str | torch.device") -> "torch.device":
    """Return a device by its name. Raises ConfigError where there is no such device."""
    import torch

    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError):
        # torch raises various errors for devices that are missing or not built in.
        raise ConfigError(
            f"device {str(name)!r} is missing: use cpu, or cuda on a machine with a GPU"
        ) from None
    return device


def wait_for(device: "torch.device") -> None:
    """Synchronise with a device, before a clock is read."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


@cache
def processor() -> str:
    """Return the processor's name, or its architecture if the name is unknown."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:  # only Linux has the file
        text = ""
    named = re.search(r"^model name[^:\n]*:(.*)", text, re.MULTILINE)
    return named[1].strip() if named else platform.processor() or platform.machine()


def describe_machine(device: "torch.device") -> dict[str, Any]:
    """Describe hardware and versions, for the record; ``gpu`` only where one is used."""
    import torch

    is_gpu = device.type == "cuda"
    return {
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": cores(),
        "device": str(device),
        **({"gpu": torch.cuda.get_device_name(device)} if is_gpu else {}),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class PeakMemory:
    """Context that measures the peak of memory, beyond the bytes resident at its start.

    On a CPU the resident set of the process is measured (on Linux; ``bytes`` is None elsewhere), on
    a GPU the memory of the allocator.
    """

    def __init__(self, device: "torch.device") -> None:
        self.bytes: int | None = None
        self._device = device
        self._before: int | None = None

    def __enter__(self) -> Self:
        import torch

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

    def __exit__(self, *_: object) -> None:
        """Stop measuring: ``bytes`` is set."""
        import torch

        if self._device.type == "cuda":
            peak: int | None = torch.cuda.max_memory_allocated(self._device)
        else:
            peak = _resident("VmHWM")
        if peak is not None and self._before is not None:
            self.bytes = max(0, peak - self._before)


def _resident(name: str) -> int | None:
    """Return the value of a line of this process's status, in bytes."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:  # only Linux has the file
        return None
    for line in lines:
        if line.startswith(f"{name}:"):
            _, kibibytes, *_ = line.split()
            return int(kibibytes) * 1024
    return None
