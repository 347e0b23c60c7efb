"""Whether nodes see the folder of a study, and have the versions that this process has."""

import os
import platform
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from shutil import rmtree

from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.storage import write_file
from sublayer.files.typed import Typed, read_typed
from sublayer.study.cluster.cluster import Cluster, Needs, NoAnswer

_TOKEN, _ANSWER = "token.txt", "answer.json"
_PROBE = Needs(cores=1, memory_bytes=128 << 20)
_LOOK_S = 0.2


class _Answer(Typed):
    token: str
    host: str
    versions: dict[str, str]


def answer(folder: Path, token: str) -> None:
    """Say, on a node, that the token was read, and what is installed there.

    Raises OSError where the folder is not there, and ValueError where it holds another token.
    """
    if (folder / _TOKEN).read_text() != token:
        raise ValueError(f"{folder} holds another token")
    content = _Answer(token=token, host=node_name(), versions=_versions())
    write_file(folder / _ANSWER, f"{content.model_dump_json()}\n")


def node_name() -> str:
    """Return what this machine is called: as Slurm has it, or as it calls itself."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def check_nodes(cluster: Cluster, study: Path, is_stopped: Callable[[], bool]) -> list[str]:
    """Have a task on each node that is probed read and write in a study's folder.

    ``study`` exists and is absolute. Returns the hosts that answered; fewer where ``is_stopped``.
    Raises ConfigError where one does not see it, or has other versions than this process has.
    """
    hosts = []
    for node, called in cluster.probed().items():
        with _hidden(study) as folder:
            token = secrets.token_hex(16)
            write_file(folder / _TOKEN, token)
            words = ["probe", str(folder), token]
            name = f"sublayer probe {secrets.token_hex(4)}"
            task = cluster.submit(name, words, _PROBE, folder, node)
            found = _wait(cluster, task, folder, is_stopped)
            if is_stopped():
                cluster.cancel([task])
                break
            if found is None or found.token != token:
                raise ConfigError(
                    f"--on {cluster.name}: {called} could not read and write in {study}, "
                    "which must be on a file system that all nodes share, as must this Python: "
                    "give another --out"
                )
            _check_versions(cluster.name, found)
            hosts.append(found.host)
    return hosts


def _wait(
    cluster: Cluster, task: str, folder: Path, is_stopped: Callable[[], bool]
) -> _Answer | None:
    """Wait until the task has ended; return what it answered, None for nothing."""
    until = float("inf")
    asked = time.monotonic()
    while not is_stopped() and time.monotonic() < until:
        time.sleep(_LOOK_S)
        if (folder / _ANSWER).exists():
            return read_typed(folder / _ANSWER, _Answer, CheckpointError)
        now = time.monotonic()
        if until == float("inf") and now - asked >= cluster.patience_s:
            asked = now
            with suppress(NoAnswer):
                if not cluster.active([task]):
                    until = now + cluster.grace_s
    return None


def _check_versions(name: str, found: _Answer) -> None:
    for package, ours in _versions().items():
        theirs = found.versions.get(package)
        if theirs != ours:
            raise ConfigError(
                f"--on {name}: {found.host} has {package} {theirs}, and this process {ours}: "
                "install the same on all nodes"
            )


def _versions() -> dict[str, str]:
    versions = {name: version(name) for name in ("sublayer", "torch", "numpy", "tokenizers")}
    return {**versions, "python": platform.python_version()}


@contextmanager
def _hidden(study: Path) -> Iterator[Path]:
    """Make a hidden folder, which occupies a study's as little as its lock does."""
    folder = study / f".probe-{secrets.token_hex(8)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)
