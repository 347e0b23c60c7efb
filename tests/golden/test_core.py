"""The comparison of golden results, on results of its own."""

import json
import re

import pytest

from tests.golden import core
from tests.golden.core import WRITE, compare, compare_text, digest, expect_names

WRITTEN = {"losses": [2.5, 2.25], "steps": 20}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write results as a named kind of processor; afterwards they are compared."""
    monkeypatch.setattr(core, "FOLDER", tmp_path / "tests" / "golden")

    def write_as(kind, found):
        monkeypatch.setattr(core, "kind", lambda: kind)
        monkeypatch.setenv(WRITE, "1")
        compare("subject", "name", found, tolerance=1e-5)
        monkeypatch.delenv(WRITE)
        return {path: path.read_bytes() for path in tmp_path.rglob("*.json")}

    write_as("one", WRITTEN)
    return write_as


@pytest.mark.parametrize(
    "found, message",
    [
        ({**WRITTEN, "losses": [2.5, 2.2500001]}, "kinds/one/subject.json holds other results"),
        (
            {**WRITTEN, "losses": [2.5, 2.26]},
            "name: losses[1]: expected 2.25, found 2.26 (+4.4e-03)",
        ),
        ({**WRITTEN, "steps": 21}, "name: steps: expected 20, found 21"),
        ({**WRITTEN, "losses": [2.5]}, "name: losses: expected 2 elements, found 1"),
        ({"losses": [2.5, 2.25]}, "name: steps: expected 20, found none"),
        ({**WRITTEN, "losses": [2.5, float("nan")]}, "name: losses[1]: expected 2.25, found nan"),
    ],
)
def test_a_difference_is_named(write, found, message):
    compare("subject", "name", WRITTEN, tolerance=1e-5)
    with pytest.raises(AssertionError, match=re.escape(message)):
        compare("subject", "name", found, tolerance=1e-5)


def test_kinds_do_not_undo_each_other(write, tmp_path, monkeypatch):
    near = {**WRITTEN, "losses": [2.5, 2.2500001]}
    monkeypatch.setattr(core, "kind", lambda: "two")
    compare("subject", "name", near, tolerance=1e-5)
    files = write("two", near)
    assert write("one", WRITTEN) == write("two", near) == files
    with pytest.raises(AssertionError, match="kinds/two"):
        compare("subject", "name", WRITTEN, tolerance=1e-5)
    far = write("two", {**WRITTEN, "losses": [2.5, 2.26]})
    changed = sorted(path.name for path in files if files[path] != far[path])
    assert changed == ["subject.json", "subject.json"]
    assert json.loads(far[tmp_path / "tests/golden/data/subject.json"])["name"]["losses"][1] == 2.26


TEXT = "step 8/8  loss 4.5303\n------  1,024 tokens\nSHA-256  a109e5653\n"


@pytest.mark.parametrize(
    "found, is_near",
    [
        (TEXT, True),
        (TEXT.replace("4.5303", "4.5313"), True),
        (TEXT.replace("------", "-------"), True),
        (TEXT.replace("4.5303", "4.5403"), False),
        (TEXT.replace("8/8", "8/9"), False),
        (TEXT.replace("loss", "valid"), False),
        (TEXT + "step 9\n", False),
    ],
)
def test_a_text_is_held_to_every_character_where_it_was_written(
    write, monkeypatch, tmp_path, found, is_near
):
    monkeypatch.setenv(WRITE, "1")
    compare_text("told", TEXT, tolerance=1e-3)
    monkeypatch.delenv(WRITE)
    if found != TEXT:
        with pytest.raises(AssertionError, match="told.txt holds another text"):
            compare_text("told", found, tolerance=1e-3)
    monkeypatch.setattr(core, "kind", lambda: "two")
    if not is_near:
        with pytest.raises(AssertionError, match="told.txt holds another text"):
            compare_text("told", found, tolerance=1e-3)
    else:
        compare_text("told", found, tolerance=1e-3)
    monkeypatch.setenv(WRITE, "1")
    compare_text("told", found, tolerance=1e-3)
    on_file = tmp_path / "tests" / "golden" / "data" / "told.txt"
    assert on_file.read_text() == (TEXT if is_near else found)


def test_results_that_nothing_compares_are_found_and_removed(write, monkeypatch):
    with pytest.raises(AssertionError, match="nothing compares"):
        expect_names("subject", ["other"])
    monkeypatch.setenv(WRITE, "1")
    expect_names("subject", ["other"])
    monkeypatch.delenv(WRITE)
    with pytest.raises(AssertionError, match="has no 'name': run `make golden`"):
        compare("subject", "name", WRITTEN)


def test_a_kind_is_named_alike_again():
    assert core.kind.__wrapped__() == core.kind()
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})
