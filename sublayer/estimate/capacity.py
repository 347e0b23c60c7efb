"""Checks that this machine can hold what is about to be built, before anything is allocated.

What fits tightly, or only by swapping, is let through; what cannot fit is refused in one line.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sublayer.errors import ConfigError
from sublayer.system.memory import total_memory

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
    """Raise ConfigError, with both sizes, where ``needed`` bytes are more than the machine has.

    ``what`` is the error's subject, ``remedy`` says in the imperative what to do. Where the system
    does not say what it has, all is let through.
    """
    here = total_memory()
    if here is not None and needed > here:
        raise ConfigError(
            f"{what} needs {format_bytes(needed)}, {format_bytes(here)} here: {remedy}"
        )


@contextmanager
def allocating(what: str, remedy: str) -> Iterator[None]:
    """Turn a failure to allocate, which no estimate could foresee, into a ConfigError.

    Its text is made of ``what`` and ``remedy`` as in ``check_memory``. Other errors pass.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        raise ConfigError(f"there is not enough memory for {what}: {remedy}") from error


def lacks_memory(error: BaseException) -> bool:
    """Check whether an error says that memory is lacking, by its class or by its words."""
    if isinstance(error, MemoryError):
        return True
    # Of products that there are none of, such as of two types, oneDNN says almost the same.
    text = str(error).replace("could not create a primitive descriptor", "")
    return any(mark in text for mark in _MARKS)


def format_bytes(size: int) -> str:
    """Format a size in bytes with three figures in the unit that suits it: ``14.6 TiB``.

    Units are powers of 1024; from 1,024 EiB on it counts whole EiB.
    """
    if size >= 1 << 70:
        return f"{size >> 60:,} EiB"
    power = max(0, (size.bit_length() - 1) // 10)
    return f"{size / 1024**power:,.3g} {_UNITS[power]}"
