"""Run command lines, given as JSON ``[[N, WORDS], ...]``, each in N forks of one process."""

import json
import os
import socket
import sys

from sublayer.cli import main as cli
from sublayer.runs import run as run  # What training imports, before the forks.
from sublayer.training import sharded as sharded


def run_in(n_processes: int, words: list[str]) -> bool:
    """Run a command line in so many processes that train together; return whether all succeed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    started = []
    for rank in range(n_processes):
        started.append(os.fork())
        if not started[-1]:
            if n_processes > 1:
                ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": n_processes}
                os.environ.update({name: str(value) for name, value in ranks.items()} | place)
            os._exit(cli.main(words))
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in started]
    return not any(codes)


if __name__ == "__main__":
    sys.exit(not all(run_in(n, words) for n, words in json.loads(sys.argv[1])))
