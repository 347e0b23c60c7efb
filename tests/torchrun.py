"""The command that starts a module in several processes of one machine."""

import sys


def in_processes(n, module, *words):
    if n == 1:
        return [sys.executable, "-m", module, *map(str, words)]
    launcher = ["torch.distributed.run", "--nproc-per-node", str(n), "--standalone"]
    return [sys.executable, "-m", *launcher, "-m", module, *map(str, words)]


def in_two_processes(module, *words):
    return in_processes(2, module, *words)
