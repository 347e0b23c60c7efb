"""A cluster of Ray, asked through a process of its own."""

import json
import socket
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sublayer.errors import ConfigError, one_line
from sublayer.study.cluster.cluster import Cluster, ClusterGone, Needs, Node, TaskState, passed_on
from sublayer.study.cluster.place import ClusterPlace
from sublayer.system.extras import check_extra
from sublayer.system.python_process import python_command

_CONNECT_S = 10.0
_SHOWN = 160
"""Characters of what Ray says of a failure."""


class RayCluster(Cluster):
    """The cluster at an address, or that of ``RAY_ADDRESS`` or of this machine."""

    patience_s = 1.0
    grace_s = 5.0

    def __init__(self, place: ClusterPlace) -> None:
        """Connect. Raises ConfigError where there is no cluster, DataError without Ray."""
        self.name = str(place)
        check_extra("ray", f"studies with --on {place}", "cluster")
        if place.where:
            _check_there(place)
        # A Ctrl-C of the terminal is this process's, and the broker ends with its input.
        self._broker = subprocess.Popen(
            python_command("sublayer.study.cluster.schedulers.ray_broker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        found = self._exchange({"address": place.where or "auto"})
        if found is None or "error" in found:
            said = (found or {}).get("error", "its connection was lost")
            raise ConfigError(
                f"--on {place}: no cluster of Ray answers ({said[:_SHOWN]}): start one with ray "
                "start --head, or name it with --on ray:HOST:PORT"
            )

    def nodes(self) -> list[Node]:
        """Return the nodes that are alive and have cores."""
        return [Node(**each) for each in self._do("nodes")]

    def submit(
        self, name: str, words: Sequence[str], needs: Needs, folder: Path, node: str = ""
    ) -> str:
        """Create the actor of a task. Where a node is named, it takes it beside all others."""
        what = {"words": list(words), "environment": dict(passed_on()), "needs": asdict(needs)}
        self._do("submit", name=name, node=node, **what)
        return name

    def find(self, name: str) -> str | None:
        """Return the actor of that name, which is its id, if it waits or lives."""
        return name if self.active([name]) else None

    def active(self, ids: Collection[str]) -> Mapping[str, TaskState]:
        """Return the actors that wait or live, as if all lived: none is begun again by Ray."""
        return dict.fromkeys(self._do("active", ids=list(ids)), TaskState(is_running=True))

    def cancel(self, ids: Collection[str]) -> None:
        """End actors: their runs save and stop."""
        self._do("cancel", ids=list(ids))

    def probed(self) -> Mapping[str, str]:
        """Return every node, by the id that Ray has for it."""
        return {node.identity: node.name for node in self.nodes()}

    def _do(self, what: str, **asked: Any) -> Any:
        found = self._exchange({"do": what, **asked})
        if found is None or "error" in found:
            said = (found or {}).get("error", "its connection was lost")
            raise ClusterGone(
                f"--on {self.name}: the cluster is gone ({said[:_SHOWN]}); what ran there saves "
                "where it can, and the same command goes on once there is a cluster again"
            )
        return found["answer"]

    def _exchange(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        """Ask the broker; return its answer, or None where it has ended."""
        assert self._broker.stdin is not None and self._broker.stdout is not None
        with suppress(OSError, ValueError):
            self._broker.stdin.write(f"{json.dumps(asked)}\n".encode())
            self._broker.stdin.flush()
            answer: dict[str, Any] = json.loads(self._broker.stdout.readline())
            return answer
        return None


def _check_there(place: ClusterPlace) -> None:
    host, _, port = place.where.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--on {place} names no HOST:PORT, such as --on ray:10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"--on {place}: nothing answers there ({one_line(str(error))}): start a cluster with "
            "ray start --head, or name another"
        ) from None
