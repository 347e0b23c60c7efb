"""The process that talks to Ray for a comparison: one JSON object a line, each way.

What Ray prints, and how it ends a process whose cluster is gone, are not the comparison's. Each
task is a detached actor, which outlives this process and the comparison's.
"""

import json
import logging
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from sublayer.errors import one_line
from sublayer.study.cluster.schedulers.ray_holder import Holder

_NAMESPACE = "sublayer"


def main() -> NoReturn:
    """Connect to the address in the first line, and do what the others ask until there are none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    broker: _Broker | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if broker is None:
                broker = _Broker(asked["address"])
                answer: Any = True
            else:
                answer = getattr(broker, asked.pop("do"))(**asked)
            content = {"answer": answer}
        except (ConnectionError, RuntimeError, ValueError) as error:
            content = {"error": one_line(str(error))}
        answers.write(f"{json.dumps(content)}\n")
        answers.flush()
    # Taking leave of a cluster that is gone would last for ever.
    os._exit(0)


class _Broker:
    """A connection to a cluster of Ray; each method is a request."""

    def __init__(self, address: str) -> None:
        self._ray = import_module("ray")
        self._ray.init(
            address=address, namespace=_NAMESPACE, log_to_driver=False, logging_level=logging.ERROR
        )
        self._strategies = import_module("ray.util.scheduling_strategies")

    def nodes(self) -> list[dict[str, Any]]:
        """Return what each node that is alive and has cores is called and has."""
        found = []
        for each in self._ray.nodes():
            has = each["Resources"]
            if each["Alive"] and has.get("CPU"):
                memory = has.get("memory")
                node = {
                    "name": each["NodeManagerHostname"],
                    "identity": each["NodeID"],
                    "cores": int(has["CPU"]),
                    "memory_bytes": None if memory is None else int(memory),
                    "gpus": int(has.get("GPU", 0)),
                }
                found.append(node)
        return found

    def submit(
        self,
        name: str,
        words: list[str],
        environment: dict[str, str],
        needs: dict[str, int],
        node: str,
    ) -> None:
        """Create an actor; the node of an id that is given takes it beside all others."""
        options: dict[str, Any] = {"num_cpus": needs["cores"], "num_gpus": needs["gpus"]}
        if needs["memory_bytes"]:
            options["memory"] = needs["memory_bytes"]
        if node:
            affinity = self._strategies.NodeAffinitySchedulingStrategy(node, soft=False)
            options = {"num_cpus": 0, "scheduling_strategy": affinity}
        self._ray.remote(Holder).options(
            name=name, namespace=_NAMESPACE, lifetime="detached", max_restarts=0, **options
        ).remote(words, environment)

    def active(self, ids: list[str]) -> list[str]:
        """Return those of the actors that wait or live."""
        return [each for each in ids if self._actor(each) is not None]

    def cancel(self, ids: list[str]) -> None:
        """End actors: their runs save and stop."""
        for each in ids:
            actor = self._actor(each)
            if actor is not None:
                self._ray.kill(actor)

    def _actor(self, identity: str) -> Any | None:
        with suppress(ValueError):
            return self._ray.get_actor(identity, namespace=_NAMESPACE)
        return None
