"""The processor's cores, from which threads and micro-batches are derived."""

import os


def cores() -> int:
    """Count the processor cores that this process may use.

    A container's share of processor time, as ``docker --cpus`` sets it, is not looked at.
    """
    if hasattr(os, "sched_getaffinity"):
        allowed = os.sched_getaffinity(0)
        return len(allowed)
    return os.cpu_count() or 1
