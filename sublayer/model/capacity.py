"""Whether this machine can hold at all what is about to be made, asked before anything is allocated.

What fits tightly, or only by swapping, is let through; what cannot fit is refused in one line.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sublayer.errors import ConfigError
from sublayer.system_memory import total_memory

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
