import os
import time
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from sublayer.errors import ConfigError, DataError
from sublayer.files.cache_folder import cache_folder, replacing
from sublayer.files.storage import temporary_path


def test_the_folder_asked_for_comes_before_the_environments(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SUBLAYER_CACHE", "")
    assert cache_folder() == user_cache_path("sublayer", False)
    assert cache_folder().is_relative_to(tmp_path)
    monkeypatch.setenv("SUBLAYER_CACHE", "~/kept")
    assert cache_folder() == tmp_path / "kept"
    assert cache_folder(Path("mine")) == Path("mine")


def test_the_platforms_folder_is_used_where_there_is_none_of_before(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SUBLAYER_CACHE", raising=False)
    monkeypatch.setattr(
        "sublayer.files.cache_folder.user_cache_path", lambda name, _: tmp_path / "caches" / name
    )
    platforms, earlier = tmp_path / "caches" / "sublayer", tmp_path / ".cache" / "sublayer"
    assert cache_folder() == platforms
    earlier.mkdir(parents=True)
    assert cache_folder() == earlier
    platforms.mkdir(parents=True)
    assert cache_folder() == platforms


def test_a_home_of_nobody_is_refused(monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", "")
    monkeypatch.setattr(
        "sublayer.files.cache_folder.user_cache_path", lambda name, _: Path("~nobody-here") / name
    )
    with pytest.raises(ConfigError, match="no home folder here"):
        cache_folder()


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "deep" / "file"
    with replacing(path) as file:
        file.write(b"half")
        file.flush()
        assert not path.exists()
        file.write(b" and whole")
    assert path.read_bytes() == b"half and whole"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with pytest.raises(KeyError), replacing(path) as file:  # noqa: PT012
        file.write(b"half")
        raise KeyError
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_two_writers_at_once_both_succeed(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as first, replacing(path) as second:
        first.write(b"equal")
        second.write(b"equal")
    assert path.read_bytes() == b"equal"


def test_what_a_killed_process_left_is_removed_when_it_is_old(tmp_path):
    old, young = temporary_path(tmp_path / "file"), temporary_path(tmp_path / "file")
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 2 * 24 * 3600,) * 2)
    with replacing(tmp_path / "file") as file:
        file.write(b"whole")
    assert not old.exists()
    assert young.exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with (
        pytest.raises(DataError, match="cannot write .*set SUBLAYER_CACHE to a folder with room"),
        replacing(tmp_path / "file" / "below"),
    ):
        pass


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="no /dev/full here to stand for a full disk"
)
def test_a_full_disk_is_named(tmp_path):
    with (
        pytest.raises(
            DataError, match="cannot write .*: No space left on device; set SUBLAYER_CACHE"
        ),
        replacing(tmp_path / "file"),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"text")
    assert list(tmp_path.iterdir()) == []
