"""Load for a measurement: other processes that take steps, as parallel runs would.

Started as a process, the module takes training steps until its standard input ends.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from sublayer.errors import ConfigError
from sublayer.system.processes import at_end_of_input, python_command

if TYPE_CHECKING:
    from sublayer.study.budget import Sized


@contextmanager
def company(arm: "Sized", n_others: int, device: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Have ``n_others`` processes take an arm's training steps; they have begun on entry.

    Raises ConfigError if one cannot, OSError if the system lacks resources.
    """
    measured = {
        "recipe": arm.recipe.model_dump_json(),
        "vocab_size": arm.vocab_size,
        "d_model": arm.model.d_model,
        "device": device,
    }
    command = [*python_command("sublayer.study.jobs.company"), json.dumps(measured)]
    others: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(n_others):
            others.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        for other in others:
            assert other.stdout is not None
            if not other.stdout.readline():
                raise ConfigError(
                    f"one of {n_others + 1} processes measured together ended, perhaps for lack "
                    "of memory: give fewer --jobs"
                )
        yield others
    finally:
        for other in others:
            other.kill()
        for other in others:
            # Closes its pipes, and waits for it.
            with suppress(OSError), other:
                pass


def main() -> int:
    """Take steps of the recipe in the argument; print a line before the first."""
    # Its parent ends it; nothing is saved.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    at_end_of_input(lambda: os._exit(0))
    measured = json.loads(sys.argv[2])

    import torch

    from sublayer.config.recipe import Recipe
    from sublayer.study.step_time import train_step, with_precision

    device = torch.device(measured["device"])
    recipe = Recipe.model_validate_json(measured["recipe"])
    recipe = with_precision(recipe, device, measured["d_model"])
    take_step = train_step(recipe, measured["vocab_size"], device)
    sys.stdout.write("\n")
    sys.stdout.flush()
    for number in itertools.count():
        take_step(number)
    return 0
