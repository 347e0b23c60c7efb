"""What Ray runs on a node: an actor that holds the process of a task, and ends with it."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from importlib import import_module
from threading import Thread

from sublayer.study.cluster.node import LEASHED
from sublayer.system.python_process import python_command

NODE = "sublayer.study.cluster.node"


class Holder:
    """Holds a process by its standard input: where Ray ends the actor, the run saves and stops."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the process, with this Python and with variables over those of the node."""
        command = [*python_command(NODE), LEASHED, *words]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, env={**os.environ, **environment}
        )
        Thread(target=self._end, daemon=True).start()

    def _end(self) -> None:
        self._process.wait()
        ray = import_module("ray")
        ray.kill(ray.get_runtime_context().current_actor)
