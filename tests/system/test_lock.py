"""One process at a time holds a folder, by a lock that takes nobody's place, on every system."""

import builtins
import fcntl
import os
import shutil
import sys
import types

import pytest

from sublayer.errors import ConfigError
from sublayer.system.lock import LOCK, held
from tests.waiting import waits_until


@pytest.fixture(params=["posix", "windows"])
def _system(request, monkeypatch):
    """This system, and one without fcntl and without the flags that only POSIX has."""
    if request.param == "posix":
        return
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


@pytest.mark.usefixtures("_system")
def test_a_folder_is_held_by_one_process_at_a_time(tmp_path):
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
    with pytest.raises(ConfigError, match="is in the way, it is not a file"), held(tmp_path):
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
