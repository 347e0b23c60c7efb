import json
import shutil

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


def write(root, step, *, best=None, content=b"weights"):
    with new_checkpoint(root, step) as folder:
        (folder / "model").mkdir()
        (folder / "model" / "model.safetensors").write_bytes(content)
        (folder / "state.json").write_text(state(step, best or step))
    return checkpoint_path(root, step)


def test_the_newest_whole_checkpoint_is_found(tmp_path):
    write(tmp_path, 5)
    write(tmp_path, 10)
    assert newest_checkpoint(tmp_path, pytest.fail) == checkpoint_path(tmp_path, 10)


def test_nothing_is_found_where_nothing_was_saved(tmp_path):
    assert newest_checkpoint(tmp_path / "missing", pytest.fail) is None
    assert newest_checkpoint(tmp_path, pytest.fail) is None


def list_in_manifest(path, name):
    """Let the manifest of a checkpoint list one file more, as it lists the state."""
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, name: manifest["state.json"]}))


def change_state(path, **changed):
    """Change what a checkpoint says of the loop, and the manifest with it."""
    (path / "state.json").write_text(state(10, 10, **changed))
    write_manifest_anew(path / "state.json")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lambda path: (path / "model" / "model.safetensors").write_bytes(b"weight"),
            "has 6 bytes where 7 were written",
        ),
        (
            lambda path: (path / "model" / "model.safetensors").write_bytes(b"Weights"),
            "its checksum differs",
        ),
        (lambda path: (path / "model" / "model.safetensors").unlink(), "is missing"),
        (lambda path: (path / "manifest.json").unlink(), "is not a complete checkpoint"),
        (lambda path: (path / "manifest.json").write_text("{"), "is not JSON"),
        (
            lambda path: (path / "manifest.json").write_text("{}"),
            "does not list model/model.safetensors",
        ),
        (
            lambda path: (path / "manifest.json").write_text("[]"),
            "is damaged: input should be a valid dictionary",
        ),
        (
            lambda path: (path / "manifest.json").write_text('{"state.json": {"bytes": 1}}'),
            "sha256: field required",
        ),
        (
            lambda path: (path / "manifest.json").write_text("[" * 10**5),
            "is nested more than 64 deep",
        ),
        (
            lambda path: list_in_manifest(path, "../../etc/passwd"),
            "'../../etc/passwd' is no file of the checkpoint",
        ),
        (
            lambda path: list_in_manifest(path, "/etc/passwd"),
            "'/etc/passwd' is no file of the checkpoint",
        ),
        (lambda path: list_in_manifest(path, "x" * 300), "File name too long"),
        (lambda path: list_in_manifest(path, "missing"), "missing is missing"),
        (lambda path: change_state(path, step=True), "step: input should be a valid integer"),
        (
            lambda path: change_state(path, tokens="/etc/passwd"),
            "tokens: input should be a valid integer",
        ),
        (
            lambda path: change_state(path, step_seconds=0),
            "step_seconds: input should be greater than 0",
        ),
        (lambda path: change_state(path, best={"loss": 1.0}), "best.step: field required"),
        (
            lambda path: change_state(path, best={"step": 7, "loss": 1.0}),
            "step-00000007 is not a complete checkpoint",
        ),
        (lambda path: change_state(path, pending_losses=[1e300]), "pending_losses.0"),
        (lambda path: change_state(path, step=5), "state.json is of step 5"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_is_used(
    tmp_path, damage, words
):
    write(tmp_path, 5)
    damaged = write(tmp_path, 10)
    damage(damaged)
    notes = []
    assert newest_checkpoint(tmp_path, notes.append) == checkpoint_path(tmp_path, 5)
    assert len(notes) == 1
    assert "step-00000010 is refused" in notes[0]
    assert words in notes[0]


def test_a_checkpoint_whose_best_is_damaged_is_refused_too(tmp_path):
    write(tmp_path, 5)
    best = write(tmp_path, 10)
    write(tmp_path, 15, best=10)
    (best / "state.json").write_text("{}")
    notes = []
    assert newest_checkpoint(tmp_path, notes.append) == checkpoint_path(tmp_path, 5)
    assert len(notes) == 2


def test_an_unfinished_write_leaves_no_checkpoint_and_no_obstacle(tmp_path):
    def interrupted():
        with new_checkpoint(tmp_path, 5) as folder:
            (folder / "state.json").write_text("{}")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert saved_steps(tmp_path) == []
    assert newest_checkpoint(tmp_path, pytest.fail) is None
    write(tmp_path, 5)
    assert saved_steps(tmp_path) == [5]


def test_a_refused_checkpoint_is_kept_when_its_step_is_written_again(tmp_path):
    old = write(tmp_path, 5, content=b"refused")
    write(tmp_path, 5, content=b"written")
    assert (old / "model" / "model.safetensors").read_bytes() == b"written"
    assert (
        tmp_path / "refused-step-00000005-1" / "model" / "model.safetensors"
    ).read_bytes() == b"refused"


def test_setting_aside_deletes_nothing(tmp_path):
    for _ in range(2):
        set_aside(write(tmp_path, 5))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "refused-step-00000005-1",
        "refused-step-00000005-2",
    ]


def test_pruning_keeps_what_is_asked_for(tmp_path):
    for step in (5, 10, 15, 20):
        write(tmp_path, step)
    prune_checkpoints(tmp_path, [5, 20])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000005", "step-00000020"]


def test_pruning_leaves_what_is_no_checkpoint(tmp_path):
    write(tmp_path, 5)
    write(tmp_path, 10)
    others = [
        "step-00000007",
        "step-8",
        "step-²",
        "step-" + "9" * 5000,
        "notes",
        ".partial-00000005",
    ]
    for name in others:
        (tmp_path / name[:200]).mkdir()
    prune_checkpoints(tmp_path, [10])
    assert {path.name for path in tmp_path.iterdir()} == {
        "step-00000010",
        *(name[:200] for name in others),
    }
    assert saved_steps(tmp_path) == [7, 10]


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
