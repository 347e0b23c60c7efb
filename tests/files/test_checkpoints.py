"""Checkpoints: whole and unaltered, or refused by name, and none deleted that is not asked for."""

import json
import shutil
from pathlib import Path

import pytest

from sublayer.errors import CheckpointError
from sublayer.files.checkpoints import (
    checkpoint_path,
    new_checkpoint,
    newest_checkpoint,
    prune_checkpoints,
    saved_steps,
    set_aside,
    verify_parts,
)
from tests.alterations import write_manifest_anew
from tests.checkpoints import state

WEIGHTS = Path("model", "model.safetensors")


def write(root, step, *, best=None, content=b"weights"):
    with new_checkpoint(root, step) as folder:
        (folder / "model").mkdir()
        (folder / WEIGHTS).write_bytes(content)
        (folder / "state.json").write_text(state(step, best or step))
    return checkpoint_path(root, step)


def weights(content):
    return lambda path: (path / WEIGHTS).write_bytes(content)


def manifest(text):
    return lambda path: (path / "manifest.json").write_text(text)


def list_in_manifest(path, name):
    listed = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**listed, name: listed["state.json"]}))


def change_state(path, **changed):
    (path / "state.json").write_text(state(10, 10, **changed))
    write_manifest_anew(path / "state.json")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (weights(b"weight"), "has 6 bytes where 7 were written"),
        (weights(b"Weights"), "its checksum differs"),
        (lambda path: (path / WEIGHTS).unlink(), "is missing"),
        (lambda path: (path / "manifest.json").unlink(), "is not a complete checkpoint"),
        (manifest("{}"), "does not list model/model.safetensors"),
        (manifest('{"state.json": {"bytes": 1}}'), "sha256: field required"),
        (lambda path: list_in_manifest(path, "../passwd"), "passwd' is no file of the checkpoint"),
        (lambda path: list_in_manifest(path, "x" * 300), "File name too long"),
        (lambda path: change_state(path, step_seconds=0), "step_seconds: input should be"),
        (lambda path: change_state(path, best={"step": 7, "loss": 1}), "step-00000007 is not a"),
        (lambda path: change_state(path, step=5), "state.json is of step 5"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_is_used(
    tmp_path, damage, words
):
    assert newest_checkpoint(tmp_path / "missing", pytest.fail) is None
    write(tmp_path, 5)
    damaged = write(tmp_path, 10)
    assert newest_checkpoint(tmp_path, pytest.fail) == damaged
    damage(damaged)
    notes = []
    assert newest_checkpoint(tmp_path, notes.append) == checkpoint_path(tmp_path, 5)
    [note] = notes
    assert "step-00000010 is refused" in note and words in note


def test_a_checkpoint_whose_best_is_damaged_is_refused_too(tmp_path):
    write(tmp_path, 5)
    best = write(tmp_path, 10)
    write(tmp_path, 15, best=10)
    (best / "state.json").write_text("{}")
    notes = []
    assert newest_checkpoint(tmp_path, notes.append) == checkpoint_path(tmp_path, 5)
    assert len(notes) == 2


def test_refused_checkpoints_are_kept(tmp_path):
    set_aside(write(tmp_path, 5, content=b"first"))
    write(tmp_path, 5, content=b"second")
    write(tmp_path, 5, content=b"third")
    assert {path.name: (path / WEIGHTS).read_bytes() for path in tmp_path.iterdir()} == {
        "refused-step-00000005-1": b"first",
        "refused-step-00000005-2": b"second",
        "step-00000005": b"third",
    }


def test_pruning_keeps_the_steps_asked_for_and_all_that_is_no_checkpoint(tmp_path):
    for step in (5, 10, 15):
        write(tmp_path, step)
    kept = {"step-00000007", "step-8", "step-²", "step-" + "9" * 190, "notes", ".partial-00000005"}
    for name in kept:
        (tmp_path / name).mkdir()
    prune_checkpoints(tmp_path, [5, 10])
    assert {path.name for path in tmp_path.iterdir()} == kept | {"step-00000005", "step-00000010"}
    assert saved_steps(tmp_path) == [5, 7, 10]


def test_a_part_of_another_checkpoint_is_refused(tmp_path):
    parts = []
    for step in (1, 2):
        with new_checkpoint(tmp_path, step) as folder:
            (folder / "model").mkdir()
            for rank in (1, 2):
                (folder / "model" / f"shard-{rank}.safetensors").write_text(f"{step} {rank}")
        parts.append(sorted((checkpoint_path(tmp_path, step) / "model").iterdir()))
    first, second = parts
    verify_parts(first)
    shutil.copy(second[1], first[1])
    with pytest.raises(CheckpointError, match=r"shard-2.safetensors is not what was written"):
        verify_parts(first)
    (checkpoint_path(tmp_path, 1) / "manifest.json").unlink()
    verify_parts(first)
