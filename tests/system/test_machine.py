"""The machine is described, and a run set up, without what only Linux has."""

import os
import platform

import pytest
import torch

from sublayer.errors import ConfigError
from sublayer.study.budget import resources
from sublayer.system import allocator, machine, memory, peak_memory
from sublayer.system.cores import cores
from sublayer.system.machine import check_device, choose_device, describe_machine, processor


@pytest.fixture
def without_linux(monkeypatch, tmp_path):
    """Take away /proc, /sys, affinity and the C library's own calls."""
    for module, name in (
        (machine, "_CPUINFO"),
        (peak_memory, "_STATUS"),
        (peak_memory, "_CLEAR"),
        (memory, "_MEMINFO"),
    ):
        monkeypatch.setattr(module, name, tmp_path / "missing" / name)
    monkeypatch.setattr(resources, "_CPUINFO", tmp_path / "missing")
    monkeypatch.setattr(memory, "_GROUPS", ())
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(allocator.sys, "platform", "win32")
    processor.cache_clear()
    yield
    processor.cache_clear()


def test_a_machine_without_proc_is_described(without_linux):
    assert processor() == (platform.processor() or platform.machine())
    described = describe_machine(torch.device("cpu"))
    assert described["cores"] == cores() == os.cpu_count()


def test_a_step_is_measured_and_planned_without_proc(without_linux):
    with peak_memory.PeakMemory(torch.device("cpu")) as peak:
        allocator.keep_freed_memory()
        allocator.return_freed_memory()
    assert peak.bytes is None
    found = resources.find_resources("cpu")
    assert not found.has_fast_bfloat16
    assert found.memory_bytes is None or found.memory_bytes > 0


def test_memory_is_unknown_where_the_system_does_not_say(without_linux, monkeypatch):
    monkeypatch.delattr(os, "sysconf_names")
    assert resources.find_resources("cpu").memory_bytes is None


@pytest.mark.parametrize("name", ["tpu", "cuda:77", "mps:9", ""])
def test_a_device_that_is_not_there_is_refused_by_name(name):
    with pytest.raises(ConfigError, match=f"device '{name}' is not there"):
        check_device(name)


def test_each_process_of_several_has_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "98")
    monkeypatch.setenv("LOCAL_RANK", "97")
    assert choose_device("cpu") == torch.device("cpu")
    # No machine has so many.
    with pytest.raises(ConfigError, match="device 'cuda:97' is not there"):
        choose_device("cuda")
    with pytest.raises(ConfigError, match="device 'cuda:96' is not there"):
        choose_device("cuda:96")


def test_the_cpu_is_chosen_where_there_is_no_gpu():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device(None).type == ("cuda" if torch.cuda.is_available() else "cpu")
