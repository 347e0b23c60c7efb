import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's"
)
# Each test has a process of its own: what other tests allocated and freed decides where a block
# is placed in this one.
_PRELUDE = """
import resource
from pathlib import Path

import numpy

from sublayer.system.allocator import keep_freed_memory, release_freed_memory, return_freed_memory

N_BYTES = 1 << 24


def touch():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    numpy.ones(N_BYTES, dtype=numpy.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

"""


def run(program: str) -> list[int]:
    """Run a program after the prelude; the numbers that it prints."""
    ran = subprocess.run(
        [sys.executable, "-c", _PRELUDE + program], capture_output=True, text=True, check=True
    )
    return [int(number) for number in ran.stdout.split()]


def test_memory_that_was_freed_is_used_again_without_page_faults() -> None:
    (n_faults,) = run("keep_freed_memory(); touch(); print(touch())")
    assert n_faults < 100


def test_memory_that_is_returned_is_no_longer_resident() -> None:
    n_bytes, held, left = run(
        "keep_freed_memory(); return_freed_memory(); before = resident_bytes();"
        "block = numpy.ones(N_BYTES, dtype=numpy.uint8); held = resident_bytes() - before;"
        "del block; print(N_BYTES, held, resident_bytes() - before)"
    )
    assert held > n_bytes // 2
    assert left < n_bytes // 2


def test_released_memory_is_no_longer_resident() -> None:
    n_bytes, released = run(
        "keep_freed_memory(); touch(); before = resident_bytes(); release_freed_memory();"
        "print(N_BYTES, before - resident_bytes())"
    )
    assert released > n_bytes // 2
