"""How many processes were started to train together, by what ``torchrun`` set."""

import os


def n_launched() -> int:
    """Count the processes that were started together; 1 without ``torchrun``."""
    n_processes = os.environ.get("WORLD_SIZE", "1")
    return int(n_processes)


def own_gpu_number() -> int:
    """Return the number of this process among those of its machine: that of its GPU, too."""
    number = os.environ.get("LOCAL_RANK", "0")
    return int(number)


def restart_count() -> int:
    """Return how often the launcher has started the processes again; 0 without one."""
    n_restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return int(n_restarts)


def is_first_launched() -> bool:
    """Return whether this process is the one that talks, before or after it joins the others."""
    rank = os.environ.get("RANK", "0")
    return rank == "0"
