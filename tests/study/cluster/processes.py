"""A cluster whose nodes are this machine: each task is a process that outlives who submitted it."""

import json
import os
import signal
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from sublayer.study.cluster.cluster import Cluster, Node, TaskState
from sublayer.study.cluster.node import FREE
from sublayer.study.cluster.place import ClusterPlace
from sublayer.system.python_process import python_command


class Processes(Cluster):
    patience_s = 0.2
    grace_s = 0.5

    def __init__(self, place: ClusterPlace) -> None:
        self.name = str(place)
        self.submitted: list[str] = []
        self.named: dict[str, str] = {}

    def nodes(self) -> list[Node]:
        return [Node("one", 1, 4 << 30), Node("two", 1, 4 << 30)]

    def submit(self, name, words, needs, folder, node=""):
        self.submitted.append(name)
        command = self.changed([*python_command("sublayer.study.cluster.node"), FREE, *words])
        self.named[name] = str(os.posix_spawn(command[0], command, os.environ, setsid=True))
        return self.named[name]

    def find(self, name: str) -> str | None:
        return next(iter(self.active([self.named.get(name, "")])), None)

    def changed(self, command: list[str]) -> list[str]:
        return command

    def active(self, ids: Collection[str]) -> Mapping[str, TaskState]:
        return {each: TaskState(is_running=True) for each in ids if is_alive(each)}

    def cancel(self, ids: Collection[str]) -> None:
        for each in ids:
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(each), signal.SIGTERM)

    def probed(self) -> Mapping[str, str]:
        return {node.name: node.name for node in self.nodes()}


def is_alive(task: str) -> bool:
    """Return whether a process is there and has not ended."""
    with suppress(ChildProcessError, ValueError):
        os.waitpid(int(task), os.WNOHANG)
    try:
        stat = Path(f"/proc/{task or 0}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class OtherDisk(Processes):
    """Nodes on which the study's folder is another one."""

    def changed(self, command: list[str]) -> list[str]:
        *words, folder, token = command
        return [*words, f"{folder}-elsewhere", token]


class OtherVersions(Processes):
    """Nodes that have another numpy."""

    packages = Path()

    def changed(self, command: list[str]) -> list[str]:
        *words, path = command[:5]
        return [*words, json.dumps([str(self.packages), *json.loads(path)]), *command[5:]]
