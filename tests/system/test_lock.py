"""One process at a time holds a folder, by a lock that takes nobody's place, on every system."""

import builtins
import fcntl
import os
import shutil
import sys
import threading
import types
from pathlib import Path

import pytest

from sublayer.errors import ConfigError
from sublayer.system.lock import LOCK, held
from sublayer.system.stage_displays import HeardStages
from sublayer.system.stages import shown_by


def _msvcrt() -> types.ModuleType:
    """The module of Windows that locks files, as far as it is used."""

    def locking(descriptor: int, mode: int, n_bytes: int) -> None:
        assert (mode, n_bytes) == (2, 1)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    module = types.ModuleType("msvcrt")
    module.LK_NBLCK, module.locking = 2, locking  # type: ignore[attr-defined]
    return module


@pytest.fixture(params=["posix", "windows"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """This system, and one without fcntl and without the flags that only POSIX has."""
    if request.param == "windows":
        imported = builtins.__import__

        def without_fcntl(name: str, *rest: object) -> types.ModuleType:
            if name == "fcntl":
                raise ModuleNotFoundError(name)
            return imported(name, *rest)

        monkeypatch.setattr(builtins, "__import__", without_fcntl)
        monkeypatch.setitem(sys.modules, "msvcrt", _msvcrt())
        monkeypatch.setattr(sys, "platform", "win32")
        for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):
            monkeypatch.delattr(os, flag)
    return request.param


def test_a_folder_is_held_by_one_process_at_a_time(tmp_path: Path, system: str) -> None:
    with held(tmp_path / "a" / "b"):
        with pytest.raises(ConfigError, match="another process is training in"):
            with held(tmp_path / "a" / "b"):
                pass
        assert (tmp_path / "a" / "b" / LOCK).is_file()
    assert not (tmp_path / "a").exists(), "what was made and holds nothing is taken away again"
    (tmp_path / "theirs").mkdir()
    with held(tmp_path / "theirs"):
        (tmp_path / "theirs" / "x").touch()
    assert [path.name for path in (tmp_path / "theirs").iterdir()] == ["x"]


def test_a_lock_that_a_killed_process_left_is_taken_over(tmp_path: Path, system: str) -> None:
    with held(tmp_path):
        left = (tmp_path / LOCK).read_bytes()
    (tmp_path / LOCK).write_bytes(left)
    with held(tmp_path):
        pass
    assert not (tmp_path / LOCK).exists()


def test_a_file_of_the_users_is_locked_and_left_as_it_is(tmp_path: Path, system: str) -> None:
    (tmp_path / LOCK).write_text("mine")
    with held(tmp_path), pytest.raises(ConfigError, match="another process"), held(tmp_path):
        pass
    assert (tmp_path / LOCK).read_text() == "mine"


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("theirs")])
def test_what_is_no_file_is_in_the_way(tmp_path: Path, make) -> None:
    (tmp_path / "theirs").write_text("theirs")
    make(tmp_path / LOCK)
    with pytest.raises(ConfigError, match="is in the way, it is not a file"), held(tmp_path):
        pass
    assert (tmp_path / "theirs").read_text() == "theirs" and os.path.lexists(tmp_path / LOCK)


def test_a_lock_that_was_taken_away_while_it_was_waited_for_is_made_anew(
    tmp_path: Path, monkeypatch
) -> None:
    from sublayer.system import lock

    opened = lock._open

    def opened_too_late(path: Path) -> int:
        descriptor = opened(path)
        monkeypatch.setattr(lock, "_open", opened)
        path.unlink()
        return descriptor

    monkeypatch.setattr(lock, "_open", opened_too_late)
    with held(tmp_path):
        assert (tmp_path / LOCK).is_file()
        with pytest.raises(ConfigError), held(tmp_path):
            pass


@pytest.mark.parametrize("goes", [False, True])
def test_who_waits_for_a_folder_has_it_once_it_is_free(tmp_path: Path, goes: bool) -> None:
    said = []
    waits = threading.Event()

    def hear(text: str) -> None:
        said.append(text)
        waits.set()

    def wait() -> None:
        with held(tmp_path / "a", waits_for="another process"):
            said.append("has it")
            assert (tmp_path / "a" / LOCK).is_file()

    with shown_by(HeardStages(hear, said.append)):
        with held(tmp_path / "a"):
            waiting = threading.Thread(target=wait)
            waiting.start()
            assert waits.wait(60)
            said.append("free")
            if goes:  # with all that is in it
                shutil.rmtree(tmp_path / "a")
        waiting.join()
    assert said[:2] == ["waiting for another process", "free"]
    assert "has it" in said[2:]
    assert not (tmp_path / "a").exists()
