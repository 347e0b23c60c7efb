"""Files and folders are whole or absent, and nothing that was there is touched on the way."""

import os
from pathlib import Path

import pytest

from sublayer.files import storage
from sublayer.files.storage import (
    new_file,
    new_folder,
    open_file,
    remove_abandoned,
    temporary_path,
    write_file,
)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def _write_half(path: Path) -> None:
    with new_file(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def _fill_half(path: Path) -> None:
    with new_folder(path) as folder:
        (folder / "x").write_text("x")
        raise KeyboardInterrupt


def test_a_file_replaces_the_one_before_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_file(path, "ä")
    write_file(path, b"b")
    assert path.read_bytes() == b"b" and _names(tmp_path) == ["a.json"]


def test_a_file_that_fails_leaves_the_one_before_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_file(path, "before")
    with pytest.raises(KeyboardInterrupt):
        _write_half(path)
    assert path.read_text() == "before" and _names(tmp_path) == ["a.json"]


def test_a_link_is_replaced_and_what_it_points_to_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "theirs.txt").write_text("theirs")
    (tmp_path / "a.json").symlink_to("theirs.txt")
    write_file(tmp_path / "a.json", "ours")
    assert (tmp_path / "theirs.txt").read_text() == "theirs"
    assert (tmp_path / "a.json").read_text() == "ours" and not (tmp_path / "a.json").is_symlink()


def test_no_temporary_name_is_taken_or_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = tmp_path / ".taken"
    taken.symlink_to("theirs.txt")
    monkeypatch.setattr(storage, "temporary_path", lambda path: taken)
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "a.json", "ours")
    assert not (tmp_path / "theirs.txt").exists()


def test_a_folder_appears_when_it_is_filled(tmp_path: Path) -> None:
    with new_folder(tmp_path / "a" / "b") as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "x").write_text("x")
        assert not (tmp_path / "a" / "b").exists()
    assert _names(tmp_path) == ["a", "b", "inner", "x"]


def test_a_folder_that_fails_leaves_nothing_and_takes_back_what_it_made(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _fill_half(tmp_path / "a" / "b" / "c")
    assert _names(tmp_path) == []


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_a_folder_never_takes_the_place_of_what_is_there(tmp_path: Path, make) -> None:
    make(tmp_path / "a")
    with pytest.raises(FileExistsError), new_folder(tmp_path / "a"):
        pass
    (tmp_path / "a").rmdir() if make is Path.mkdir else (tmp_path / "a").unlink()
    with pytest.raises(FileExistsError), new_folder(tmp_path / "a"):
        make(tmp_path / "a")
    assert _names(tmp_path) == ["a"]


@pytest.mark.parametrize("path", ["pipe", "/dev/zero", "."])
def test_what_never_ends_is_not_opened(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is no file that stays|Is a directory"):
        open_file(tmp_path / path)


def test_what_killed_processes_left_is_removed_when_it_is_old(tmp_path: Path) -> None:
    old, young, theirs = (
        temporary_path(tmp_path / "a"),
        temporary_path(tmp_path / "b"),
        tmp_path / ".mine.partial",
    )
    old.mkdir()
    (old / "x").write_text("x")
    young.write_text("young")
    theirs.write_text("theirs")
    for path in (old, theirs):
        os.utime(path, (0, 0))
    remove_abandoned(tmp_path)
    assert _names(tmp_path) == sorted([young.name, theirs.name])


def test_a_name_as_long_as_names_may_be_can_be_written(tmp_path: Path) -> None:
    write_file(tmp_path / ("a" * 250), "x")
    with new_folder(tmp_path / ("b" * 250)):
        pass
    assert len(_names(tmp_path)) == 2
