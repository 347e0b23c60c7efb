"""Company for a measurement: other processes that take steps, as runs side by side would."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sublayer.errors import ConfigError
from sublayer.study.budget.expected import Sized
from sublayer.system.python_process import python_command


@contextmanager
def company(arm: Sized, n_others: int, device: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Have so many other processes take an arm's training steps; they have begun on entry.

    Raises ConfigError where one cannot, OSError where the system has no room for it.
    """
    asked = {
        "recipe": arm.recipe.model_dump_json(),
        "vocab_size": arm.vocab_size,
        "d_model": arm.model.d_model,
        "device": device,
    }
    line = f"{json.dumps(asked)}\n".encode()
    command = python_command("sublayer.study.execution.stepper")
    others: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(n_others):
            other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            others.append(other)
            assert other.stdin is not None
            with suppress(OSError):  # it has ended, which is seen below
                other.stdin.write(line)
                other.stdin.flush()
        for other in others:
            assert other.stdout is not None
            if not other.stdout.readline():
                raise ConfigError(
                    f"of {n_others + 1} processes that are measured together one ended, as happens "
                    "where memory is lacking: give fewer --jobs"
                )
        yield others
    finally:
        for other in others:
            other.kill()
        for other in others:
            # Closes its pipes, and waits for it.
            with suppress(OSError), other:
                pass
