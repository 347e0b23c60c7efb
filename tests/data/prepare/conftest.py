"""Texts in files."""

from pathlib import Path

import pytest

from tests.data.prepare.texts import TEXT


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir()
    for number in range(40):
        (path / f"{number:02}.txt").write_bytes(TEXT[number * 200 : number * 200 + 200])
    return path
