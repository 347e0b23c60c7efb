import platform
import resource
from pathlib import Path

import pytest
import torch

from sublayer.train.allocator import keep_freed_memory, release_freed_memory, return_freed_memory

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")
N_BYTES = 1 << 24


def touch() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(N_BYTES, dtype=torch.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_memory_that_was_freed_is_used_again_without_page_faults() -> None:
    keep_freed_memory()
    for _ in range(16):  # glibc sets aside up to seven scraps beside a block before it joins them with it again
        touch()
    assert touch() < 100


def test_memory_that_is_returned_is_no_longer_resident() -> None:
    keep_freed_memory()
    return_freed_memory()
    try:
        before = resident_bytes()
        block = torch.ones(8 * N_BYTES, dtype=torch.uint8)  # more than what other tests have freed
        assert resident_bytes() - before > 4 * N_BYTES
        del block
        assert resident_bytes() - before < 4 * N_BYTES
    finally:
        keep_freed_memory()


def test_released_memory_is_no_longer_resident() -> None:
    keep_freed_memory()
    touch()
    before = resident_bytes()
    release_freed_memory()
    assert before - resident_bytes() > N_BYTES // 2
