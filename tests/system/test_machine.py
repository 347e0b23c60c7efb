"""The machine: devices, memory, allocator, launches, and locks that one process at a time holds."""

import builtins
import fcntl
import os
import platform
import shutil
import subprocess
import sys
import types
from functools import cache

import pytest
import torch

from sublayer.errors import ConfigError
from sublayer.files import storage
from sublayer.files.storage import LOCK, held
from sublayer.study import budget
from sublayer.system import machine
from sublayer.system.machine import cores, free_memory, total_memory
from sublayer.system.processes import check_launch, is_first_launched, meeting_place, n_launched
from tests.waiting import waits_until


def test_a_machine_without_proc_is_described_and_planned(monkeypatch, tmp_path):
    files = [(machine, "_CPUINFO"), (budget, "_CPUINFO"), (machine, "_MEMINFO")]
    for module, name in (*files, (machine, "_STATUS"), (machine, "_CLEAR")):
        monkeypatch.setattr(module, name, tmp_path / "missing" / name)
    monkeypatch.setattr(machine, "_GROUPS", ())
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(machine.sys, "platform", "win32")
    monkeypatch.setattr(machine, "processor", cache(machine.processor.__wrapped__))
    assert machine.processor() == (platform.processor() or platform.machine())
    assert machine.describe_machine(torch.device("cpu"))["cores"] == cores() == os.cpu_count()
    with machine.PeakMemory(torch.device("cpu")) as peak:
        machine.keep_freed_memory()
        machine.return_freed_memory()
    assert peak.bytes is None
    assert not budget.find_resources("cpu").has_fast_bfloat16
    monkeypatch.delattr(os, "sysconf_names")
    assert budget.find_resources("cpu").memory_bytes is None


def test_a_device_is_chosen_for_every_process(monkeypatch):
    assert machine.choose_device(None).type == ("cuda" if torch.cuda.is_available() else "cpu")
    monkeypatch.setenv("WORLD_SIZE", "98")
    monkeypatch.setenv("LOCAL_RANK", "97")
    assert machine.choose_device("cpu") == torch.device("cpu")
    # No machine has so many.
    for name, shown in (("cuda", "cuda:97"), ("cuda:96", "cuda:96"), ("tpu", "tpu"), ("", "")):
        with pytest.raises(ConfigError, match=f"device '{shown}' is missing"):
            machine.choose_device(name)


def test_memory_is_that_of_the_machine_or_its_container(tmp_path, monkeypatch):
    def found():
        return total_memory() / GIB, free_memory() / GIB

    GIB = 1 << 30
    # 8 GiB, 5 available and 2 more of swap; in a container 4, of which 2 are used.
    monkeypatch.setattr(machine, "_installed", lambda: 8 * GIB)
    monkeypatch.setattr(machine, "_own_limit", lambda: None)
    monkeypatch.setattr(machine, "_MEMINFO", tmp_path / "meminfo")
    group = (tmp_path, "memory.max", "memory.current", "inactive_file")
    monkeypatch.setattr(machine, "_GROUPS", (group,))
    (tmp_path / "meminfo").write_text(f"MemAvailable: {5 << 20} kB\nSwapTotal: {2 << 20} kB\n")
    assert found() == (10, 5)
    (tmp_path / "memory.max").write_text("max\n")
    assert found() == (10, 5)
    (tmp_path / "memory.max").write_text(f"{4 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{3 * GIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon {2 * GIB}\ninactive_file {GIB}\n")
    assert found() == (6, 2)
    monkeypatch.setattr(machine, "_own_limit", lambda: GIB)
    assert total_memory() == GIB
    # Linux counts pages late: what was resident may be more than the peak.
    monkeypatch.setattr(machine, "_CLEAR", tmp_path / "clear_refs")
    monkeypatch.setattr(machine, "_resident", {"VmRSS": 5, "VmHWM": 3}.get)
    with machine.PeakMemory(torch.device("cpu")) as peak:
        pass
    assert peak.bytes == 0


# In a process of its own: other tests' blocks decide where one is placed in this process.
ALLOCATING = """
import resource
from pathlib import Path
import numpy
from sublayer.system.machine import keep_freed_memory, release_freed_memory, return_freed_memory

def n_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    numpy.ones(1 << 24, dtype=numpy.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / (1 << 24)

keep_freed_memory()
before = resident()
n_faults()
print(n_faults(), resident() - before)
release_freed_memory()
print(resident() - before)
return_freed_memory()
n_faults()
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")
def test_freed_memory_is_kept_released_or_returned():
    ran = subprocess.run([sys.executable, "-c", ALLOCATING], capture_output=True, check=True)
    n_faults, kept, released, returned = map(float, ran.stdout.split())
    assert n_faults < 100 and kept > 0.5 > max(released, returned)


@pytest.fixture
def launched(monkeypatch):
    def launch(**changed):
        given = {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1", "MASTER_ADDR": "node1"}
        for name, value in {**given, "MASTER_PORT": "29500", **changed}.items():
            monkeypatch.setenv(name, value)

    return launch


def test_several_processes_are_numbered_and_meet_and_one_needs_nothing(launched):
    launched()
    check_launch()
    assert (n_launched(), is_first_launched(), meeting_place()) == (4, False, ("node1", 29500))
    launched(WORLD_SIZE="", RANK="7", MASTER_PORT="abc")
    check_launch()
    assert is_first_launched()


@pytest.mark.parametrize("name, value, line", [
    ("WORLD_SIZE", "0", "WORLD_SIZE = 0 is not an integer of at least 1"),
    ("WORLD_SIZE", "9" * 5000, "WORLD_SIZE = 9{40} is not an integer of at least 1"),
    ("RANK", "", "RANK = unset is not an integer"),
    ("MASTER_PORT", "0", "MASTER_PORT = 0 is not a port"),
    ("RANK", "4", "RANK = 4 must be at least 0 and below WORLD_SIZE = 4"),
    ("MASTER_PORT", "65536", "MASTER_PORT = 65536 is not a port from 1 to 65535"),
])  # fmt: skip
def test_a_launch_of_no_launcher_is_refused_by_name(launched, name, value, line):
    launched(**{name: value})
    with pytest.raises(ConfigError, match=f"^{line}.*: start the processes with torchrun"):
        check_launch()


def without_posix(monkeypatch):
    imported = builtins.__import__

    def without_fcntl(name, *rest):
        if name == "fcntl":
            raise ModuleNotFoundError(name)
        return imported(name, *rest)

    def locking(descriptor, mode, n_bytes):
        assert (mode, n_bytes) == (2, 1)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    monkeypatch.setattr(builtins, "__import__", without_fcntl)
    windows = types.SimpleNamespace(LK_NBLCK=2, locking=locking)
    monkeypatch.setitem(sys.modules, "msvcrt", windows)
    monkeypatch.setattr(sys, "platform", "win32")
    for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):
        monkeypatch.delattr(os, flag)


@pytest.mark.parametrize("is_posix", [True, False])
def test_a_folder_is_held_by_one_process_at_a_time(tmp_path, monkeypatch, is_posix):
    if not is_posix:
        without_posix(monkeypatch)
    inner = tmp_path / "a" / "b"
    with held(inner):
        with pytest.raises(ConfigError, match="another process is training in"), held(inner):
            pass
        left = (inner / LOCK).read_bytes()
    assert not (tmp_path / "a").exists(), "folders that were made and hold nothing are removed"
    inner.mkdir(parents=True)
    (inner / LOCK).write_bytes(left)  # as a killed process leaves it
    with held(inner):
        (inner / "x").touch()
    assert [path.name for path in inner.iterdir()] == ["x"]
    (inner / LOCK).write_text("mine")
    with held(inner), pytest.raises(ConfigError, match="another process"), held(inner):
        pass
    assert (inner / LOCK).read_text() == "mine"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("theirs")])
def test_another_kind_of_file_is_in_the_way(tmp_path, make):
    (tmp_path / "theirs").write_text("theirs")
    make(tmp_path / LOCK)
    with (
        pytest.raises(ConfigError, match="is not a file, but the name of the lock"),
        held(tmp_path),
    ):
        pass
    assert (tmp_path / "theirs").read_text() == "theirs" and os.path.lexists(tmp_path / LOCK)


def test_who_waits_for_a_folder_has_it_once_it_is_free(tmp_path):
    def wait():
        with held(tmp_path / "a", waits_for="another process"):
            return (tmp_path / "a" / LOCK).is_file()

    # Whoever has it may remove it with all that is in it.
    for meanwhile in (lambda: None, lambda: shutil.rmtree(tmp_path / "a")):
        assert waits_until(tmp_path / "a", "waiting for another process", wait, meanwhile)
        assert not (tmp_path / "a").exists()


def test_a_folder_that_its_holder_removes_before_it_is_locked_is_created_again(
    tmp_path, monkeypatch
):
    folder, open_lock, n_removed = tmp_path / "a", storage._open, []

    def open_in_removed(path):
        if len(n_removed) < 3:
            n_removed.append(path.parent.rmdir())
        return open_lock(path)

    monkeypatch.setattr(storage, "_open", open_in_removed)
    with held(folder, waits_for="another process"):
        assert len(n_removed) == 3 and (folder / LOCK).is_file()
    assert not folder.exists()


def test_a_folder_that_takes_no_file_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_open", lambda path: os.open(path / "x", os.O_RDONLY))
    with pytest.raises(FileNotFoundError), held(tmp_path):
        pass


def test_the_lock_of_another_process_is_left_there(tmp_path):
    folder = tmp_path / "a"
    with held(folder):
        shutil.rmtree(folder)
        other = held(folder)
        other.__enter__()
    assert (folder / LOCK).is_file()
    other.__exit__(None, None, None)
    assert not folder.exists()
