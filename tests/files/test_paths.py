"""Paths as users type them."""

from pathlib import Path

import pytest

from sublayer.files.paths import as_typed


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("{here}/runs/a", "runs/a"),
        ("train.en and {here}/train.de", "train.en and train.de"),
        ("{here}/salt and pepper.txt", "salt and pepper.txt"),
        ("{above}/other/book.txt", "{above}/other/book.txt"),
        ("hub:owner/name", "hub:owner/name"),
    ],
)
def test_a_path_below_the_current_folder_is_shown_as_it_is_typed_there(
    name: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    places = {"here": here, "above": tmp_path}
    assert as_typed(name.format(**places)) == shown.format(**places)
