"""The memory of a machine, in a container and without, from files as Linux writes them."""

from pathlib import Path

import pytest

from sublayer.system import memory
from sublayer.system.memory import free_memory, total_memory

GIB = 1 << 30


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 8 GiB, 5 available and 2 more of swap; the folder of its container's limits."""
    monkeypatch.setattr(memory, "_installed", lambda: 8 * GIB)
    monkeypatch.setattr(memory, "_own_limit", lambda: None)
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text(f"MemAvailable: {5 << 20} kB\nSwapTotal: {2 << 20} kB\n")
    folder = tmp_path / "group"
    folder.mkdir()
    monkeypatch.setattr(
        memory, "_GROUPS", ((folder, "memory.max", "memory.current", "inactive_file"),)
    )
    return folder


def test_without_a_container_it_is_the_machines(group: Path) -> None:
    assert total_memory() == 10 * GIB and free_memory() == 5 * GIB
    (group / "memory.max").write_text("max\n")
    assert total_memory() == 10 * GIB and free_memory() == 5 * GIB


def test_a_container_has_its_limit_and_of_what_it_uses_cached_files_give_way(group: Path) -> None:
    (group / "memory.max").write_text(f"{4 * GIB}\n")
    (group / "memory.current").write_text(f"{3 * GIB}\n")
    (group / "memory.stat").write_text(f"anon {2 * GIB}\ninactive_file {GIB}\n")
    assert total_memory() == 6 * GIB and free_memory() == 2 * GIB


def test_a_limit_on_addresses_counts_where_it_leaves_less(
    group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_own_limit", lambda: GIB)
    assert total_memory() == GIB


def test_where_no_one_says_nothing_is_known(group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MEMINFO", group / "missing")
    assert free_memory() == 8 * GIB
    monkeypatch.setattr(memory, "_installed", lambda: None)
    assert total_memory() is None and free_memory() is None
