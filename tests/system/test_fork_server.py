"""Forked processes: own exit codes, standard input, variables; a server that computes nothing."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sublayer.study.jobs.backends import LocalProcesses
from sublayer.system.processes import ForkServer, forked_argument

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely")


def main() -> int:
    """Do what the argument says: end with a code, or at the end of the standard input."""
    argument = forked_argument(_PRELOADS[os.environ.get("PRELOAD", "")])
    if argument is None:
        return 0
    if argument.isdecimal():
        return int(argument)
    path = Path(argument)
    Path(f"{path}.partial").write_text(f"{os.getppid()}")
    Path(f"{path}.partial").rename(path)
    sys.stdin.read()
    path.unlink()
    return 0


def start_thread() -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


_PRELOADS = {"": lambda: None, "thread": start_thread, "long": lambda: time.sleep(600)}


@pytest.fixture
def server():
    server = ForkServer(__name__)
    yield server
    server.close()


def code_of(server: ForkServer, argument: str) -> int:
    with (process := server.start(argument)).stdin:
        return process.wait()


def begun(path: Path) -> int:
    """Return the server of a process, once that waits for the end of its input."""
    while not path.exists():
        pass
    return int(path.read_text())


BOTH = pytest.mark.parametrize("preload", ["", "thread"], ids=["forked", "spawned"])


@BOTH
def test_each_process_has_its_own_end(server, tmp_path, monkeypatch, preload):
    monkeypatch.setenv("PRELOAD", preload)
    waiting, killed = (server.start(str(tmp_path / name)) for name in ("waiting", "killed"))
    assert [code_of(server, argument) for argument in "30"] == [3, 0]
    begun(tmp_path / "killed")
    killed.kill()
    assert killed.wait() == -signal.SIGKILL and waiting.poll() is None
    for process in (waiting, killed):
        process.stdin.close()
    assert waiting.wait() == 0 and not (tmp_path / "waiting").exists()


@BOTH
def test_a_process_outlasts_a_server_that_is_killed_and_another_begins(
    server, tmp_path, monkeypatch, preload
):
    monkeypatch.setenv("PRELOAD", preload)
    waiting, later = (server.start(str(tmp_path / name)) for name in ("waiting", "later"))
    begun(tmp_path / "later")
    os.kill(begun(tmp_path / "waiting"), signal.SIGKILL)
    server._server.wait()
    assert code_of(server, "3") == 3
    assert waiting.poll() is None
    waiting.stdin.close()
    assert waiting.wait() == -signal.SIGKILL and not (tmp_path / "waiting").exists()
    assert later.poll() is None  # of which the first is no part
    later.stdin.close()
    assert later.wait() == -signal.SIGKILL


def test_a_server_that_still_imports_is_ended_at_once(monkeypatch):
    monkeypatch.setenv("PRELOAD", "long")
    backend = LocalProcesses(1)
    backend._server = ForkServer(__name__)
    backend.start("one", "one", Path("one"), None)
    backend.close(at_once=True)


def test_signals_of_the_terminal_end_no_server(server):
    assert code_of(server, "0") == 0
    for number in (signal.SIGINT, signal.SIGTERM):
        server._server.send_signal(number)
    assert code_of(server, "3") == 3


def test_what_runs_need_is_imported_without_a_thread_or_a_gpu():
    code = """
import os, threading, torch
from sublayer.study.jobs.worker import _preload
torch._C._cuda_getDeviceCount = torch._C._cuda_init = None
_preload()
process = os.fork()  # ends the threads of OpenBLAS
if process:
    assert os.waitpid(process, 0)[1] == 0
assert len(os.listdir("/proc/self/task")) == threading.active_count() == 1
assert not torch.cuda.is_initialized()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
