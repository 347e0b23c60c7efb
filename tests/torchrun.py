"""The command that starts a module in several processes of one machine."""

import sys


def in_processes(n: int, module: str, *words: object) -> list[str]:
    """Return the command; of one process it is a plain one, without a launcher."""
    if n == 1:
        return [sys.executable, "-m", module, *map(str, words)]
    launcher = ["torch.distributed.run", "--nproc-per-node", str(n), "--standalone"]
    return [sys.executable, "-m", *launcher, "-m", module, *map(str, words)]


def in_two_processes(module: str, *words: object) -> list[str]:
    return in_processes(2, module, *words)
