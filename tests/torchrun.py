"""The command that starts a module in two processes of one machine."""

import sys


def in_two_processes(module: str, *words: object) -> list[str]:
    launcher = ["torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    return [sys.executable, "-m", *launcher, "-m", module, *map(str, words)]
