"""Files and folders are whole or absent, in the cache as elsewhere, and paths are as typed."""

import os
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from sublayer.errors import ConfigError, DataError
from sublayer.files import storage
from sublayer.files.cache_folder import cache_folder, replacing
from sublayer.files.paths import as_typed
from sublayer.files.storage import (
    new_file,
    new_folder,
    remove_abandoned,
    temporary_path,
    write_file,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def write_half(path: Path) -> None:
    with new_file(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def fill(path: Path, *, is_whole: bool = True) -> None:
    with new_folder(path) as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "x").write_text("x")
        assert not path.exists()
        if not is_whole:
            raise KeyboardInterrupt


def test_a_file_is_replaced_by_a_whole_one_or_left(tmp_path):
    path = tmp_path / ("a" * 250)
    write_file(path, "ä")
    assert path.read_bytes() == "ä".encode()
    write_file(path, b"before")
    with pytest.raises(KeyboardInterrupt):
        write_half(path)
    assert path.read_bytes() == b"before" and names(tmp_path) == [path.name]


def test_no_link_is_followed(tmp_path, monkeypatch):
    (tmp_path / "theirs.txt").write_text("theirs")
    for name in ("a.json", ".taken"):
        (tmp_path / name).symlink_to("theirs.txt")
    write_file(tmp_path / "a.json", "ours")
    assert (tmp_path / "a.json").read_text() == "ours" and not (tmp_path / "a.json").is_symlink()
    monkeypatch.setattr(storage, "temporary_path", lambda path: tmp_path / ".taken")
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "b.json", "ours")
    assert (tmp_path / "theirs.txt").read_text() == "theirs"


def test_a_folder_appears_when_it_is_filled_or_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path / "a" / "b" / "c", is_whole=False)
    assert names(tmp_path) == []
    fill(tmp_path / "a" / ("b" * 250))
    assert names(tmp_path) == ["a", "b" * 250, "inner", "x"]


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("nowhere")])
def test_a_folder_never_takes_the_place_of_another(tmp_path, make):
    make(tmp_path / "a")
    with pytest.raises(FileExistsError), new_folder(tmp_path / "a"):
        pass
    with pytest.raises(FileExistsError), new_folder(tmp_path / "b"):
        make(tmp_path / "b")
    assert names(tmp_path) == ["a", "b"]


def test_files_of_killed_processes_are_removed_when_they_are_old(tmp_path):
    old, young = temporary_path(tmp_path / "a"), temporary_path(tmp_path / "b")
    theirs = tmp_path / ".mine.partial"
    for path in (old, theirs):
        path.mkdir()
        (path / "x").write_text("x")
        os.utime(path, (0, 0))
    young.write_text("young")
    remove_abandoned(tmp_path)
    assert names(tmp_path) == sorted([young.name, theirs.name, "x"])


def test_the_cache_folder_is_named_or_the_platforms(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SUBLAYER_CACHE", "")
    assert cache_folder() == user_cache_path("sublayer", False)
    monkeypatch.setenv("SUBLAYER_CACHE", "~/kept")
    assert cache_folder() == tmp_path / "kept"
    assert cache_folder(Path("mine")) == Path("mine")
    monkeypatch.delenv("SUBLAYER_CACHE")
    of_platform = "sublayer.files.cache_folder.user_cache_path"
    platforms, earlier = tmp_path / "caches" / "sublayer", tmp_path / ".cache" / "sublayer"
    monkeypatch.setattr(of_platform, lambda name, _: platforms)
    assert cache_folder() == platforms
    earlier.mkdir(parents=True)
    assert cache_folder() == earlier
    platforms.mkdir(parents=True)
    assert cache_folder() == platforms
    monkeypatch.setattr(of_platform, lambda name, _: Path("~nobody-here") / name)
    monkeypatch.setenv("HOME", str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="no home folder here"):
        cache_folder()


def test_a_file_of_the_cache_is_made_with_its_folder_by_several_at_once(tmp_path):
    path = tmp_path / "deep" / "file"
    left = temporary_path(path)
    left.mkdir(parents=True)
    os.utime(left, (0, 0))
    with replacing(path) as first, replacing(path) as second:
        assert not path.exists()
        first.write(b"equal")
        second.write(b"equal")
    assert path.read_bytes() == b"equal" and names(path.parent) == ["file"]
    with pytest.raises(DataError, match="cannot write .*set SUBLAYER_CACHE to a folder with room"):
        replacing(path / "below").__enter__()
    with pytest.raises(FileNotFoundError), replacing(path):  # as it is
        (tmp_path / "none").read_bytes()
    assert path.read_bytes() == b"equal"


def test_a_path_below_the_current_folder_is_shown_as_it_is_typed_there(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert as_typed(f"train.en and {here}/train.de") == "train.en and train.de"
    assert as_typed(f"{here}/salt and pepper.txt") == "salt and pepper.txt"
    assert as_typed(f"{tmp_path}/book.txt") == f"{tmp_path}/book.txt"
    assert as_typed("hub:owner/name") == "hub:owner/name"
