"""Checkpoints and tensors in parts: whole and unaltered, put together, or refused by name."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from sublayer.errors import CheckpointError, DataError
from sublayer.files import checkpoints
from sublayer.files.arrays import dump_arrays, dump_npz, load_arrays
from sublayer.files.checkpoints import checkpoint_path, new_checkpoint, newest_checkpoint
from sublayer.files.tensors import Header, StoredTensors
from tests.alterations import state, write_manifest_anew
from tests.data.releases import write_release

WEIGHTS = Path("model", "model.safetensors")
WIDE = torch.arange(12.0).reshape(3, 4)
TALL = torch.arange(10.0).reshape(5, 2)


def write(root, step, *, best=None, content=b"weights"):
    with new_checkpoint(root, step) as folder:
        write_release(folder, {WEIGHTS: content, "state.json": state(step, best or step).encode()})
    return checkpoint_path(root, step)


def change_manifest(path, **entries):
    listed = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**listed, **entries}))


def change_state(path, **changed):
    (path / "state.json").write_text(state(10, 10, **changed))
    write_manifest_anew(path / "state.json")


@pytest.mark.parametrize("damage, words", [
    (lambda path: (path / WEIGHTS).write_bytes(b"weight"), "has 6 of 7 bytes"),
    (lambda path: (path / WEIGHTS).write_bytes(b"Weights"), "its checksum differs"),
    (lambda path: (path / WEIGHTS).unlink(), "is missing"),
    (lambda path: (path / "manifest.json").unlink(), "is not a complete checkpoint"),
    (lambda path: (path / "manifest.json").write_text("{}"), "does not list model/model.safe"),
    (lambda path: change_manifest(path, a={"bytes": 1}), "sha256: field required"),
    (lambda path: change_manifest(path, **{"../passwd": {"bytes": 1, "sha256": "0" * 64}}),
     "passwd' is not a file of the checkpoint"),
    (lambda path: change_state(path, best={"step": 7, "loss": 1}), "step-00000007 is not a"),
    (lambda path: change_state(path, step=5), "state.json belongs to step 5"),
])  # fmt: skip
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path, damage, words):
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
    best, notes = write(tmp_path, 10), []
    write(tmp_path, 15, best=10)
    (best / "state.json").write_text("{}")
    assert newest_checkpoint(tmp_path, notes.append) == checkpoint_path(tmp_path, 5)
    assert len(notes) == 2


def test_refused_checkpoints_are_kept(tmp_path):
    checkpoints.set_aside(write(tmp_path, 5, content=b"1"))
    write(tmp_path, 5, content=b"2")
    write(tmp_path, 5, content=b"third")
    kept = {path.name: (path / WEIGHTS).read_bytes() for path in tmp_path.iterdir()}
    assert kept.pop("step-00000005") == b"third"
    assert kept == {f"refused-step-00000005-{n}": str(n).encode() for n in (1, 2)}


def test_pruning_keeps_the_steps_asked_for_and_all_that_is_no_checkpoint(tmp_path):
    for step in (5, 10, 15):
        write(tmp_path, step)
    kept = {"step-00000007", "step-8", "step-²", "step-" + "9" * 190, "notes", ".partial-00000005"}
    for name in kept:
        (tmp_path / name).mkdir()
    checkpoints.prune_checkpoints(tmp_path, [5, 10])
    assert {path.name for path in tmp_path.iterdir()} == kept | {"step-00000005", "step-00000010"}
    assert checkpoints.saved_steps(tmp_path) == [5, 7, 10]


def test_a_part_of_another_checkpoint_is_refused(tmp_path):
    for step in (b"1", b"2"):
        with new_checkpoint(tmp_path, int(step)) as folder:
            write_release(folder / "model", {f"shard-{n}.safetensors": step for n in (1, 2)})
    paths = (checkpoint_path(tmp_path, step) for step in (1, 2))
    first, second = (sorted(path.glob("model/shard-*")) for path in paths)
    checkpoints.verify_parts(first)
    shutil.copy(second[1], first[1])
    with pytest.raises(CheckpointError, match=r"shard-2.safetensors is damaged: its checksum"):
        checkpoints.verify_parts(first)
    (checkpoint_path(tmp_path, 1) / "manifest.json").unlink()
    checkpoints.verify_parts(first)


def write_part(folder, number, **slices):
    offsets = {name: {"saved_offsets": start} for name, (_, start) in slices.items()}
    tensors = {name: value.contiguous() for name, (value, _) in slices.items()}
    path = folder / f"shard-{number:05d}-model-00001-of-00001.safetensors"
    save_file(tensors, path, metadata={"DCP_SHARDING_INFO": json.dumps(offsets)})
    return path


@pytest.fixture
def stored(tmp_path):
    # One is divided by columns, the other unevenly by rows.
    write_part(tmp_path, 1, wide=(WIDE[:, :2], [0, 0]), tall=(TALL[:3], [0, 0]))
    write_part(tmp_path, 2, wide=(WIDE[:, 2:], [0, 2]), tall=(TALL[3:], [3, 0]))
    return StoredTensors(tmp_path / "model.safetensors", tmp_path)


def test_parts_are_put_together_where_there_is_no_whole_file(stored):
    assert (stored.is_whole, stored.described) == (False, f"{stored.folder}, in 2 parts,")
    wide = Header([3, 4], "F32")
    assert stored.headers() == {"wide": wide, "tall": Header([5, 2], "F32")}
    found = stored.read()
    assert torch.equal(found["wide"], WIDE) and torch.equal(found["tall"], TALL)
    save_file({"wide": -WIDE}, stored.whole)
    assert stored.is_whole and stored.described == str(stored.whole)
    assert stored.read()["wide"].tolist() == (-WIDE).tolist()
    assert stored.headers() == {"wide": wide}
    with pytest.raises(FileNotFoundError):
        StoredTensors(stored.folder / "other.safetensors", stored.folder / "none").read()


@pytest.mark.parametrize("name, slices, message", [
    ("wide", [(WIDE[:2, :2], [0, 0])], "lacks a piece of wide: a part"),
    ("wide", [(WIDE[:, :2].double(), [0, 0])], "lacks a piece of wide"),
    # Rows 0 and 1, 3 and 4, and 1 once more, of five: none is missing in number but row 2.
    ("tall", [(TALL[:2], [0, 0]), (TALL[3:], [3, 0]), (TALL[1:2], [1, 0])], "a piece of tall"),
    ("wide", [(WIDE[:, :2].int(), [0, 0]), (WIDE[:, 2:].int(), [0, 2])], "has wide as I32"),
])  # fmt: skip
def test_slices_that_make_no_weights_are_refused(stored, name, slices, message):
    for number, part in enumerate(slices, 1):
        write_part(stored.folder, number, **{name: part})
    for read in (StoredTensors.headers, StoredTensors.read):
        with pytest.raises(CheckpointError, match=message):
            read(stored)


def test_a_damaged_part_is_named(stored):
    path, second = sorted(stored.folder.glob("shard-*"))
    save_file({"wide": WIDE}, path, metadata={"DCP_SHARDING_INFO": '{"wide": {}}'})
    with pytest.raises(CheckpointError, match=r"shard-00001\S+ "):
        stored.read()
    save_file({"wide": WIDE}, path)
    second.write_bytes(second.read_bytes()[:-1])
    for read in (StoredTensors.headers, StoredTensors.read):
        with pytest.raises(CheckpointError, match=r"shard-00002\S+ is damaged or truncated"):
            read(stored)


def test_arrays_and_their_header_are_read_back_unless_they_unpack_to_too_much(monkeypatch):
    for dump in (dump_arrays, dump_npz):
        data = dump({"counts": np.array([[3, 300]]), "shares": np.array([0.25])}, {"n": [1]})
        arrays, header = load_arrays(data, "it", DataError)
        assert header == {"n": [1]}
        assert arrays["counts"].tolist() == [[3, 300]] and arrays["counts"].dtype == np.uint16
        assert arrays["shares"].tolist() == [0.25]

    monkeypatch.setattr("sublayer.files.arrays._MAX_UNPACKED", 10_000)
    data = dump_npz({"counts": np.zeros(10_000, dtype=np.uint8)}, {})
    with pytest.raises(DataError, match="it holds more than 10,000 bytes"):
        load_arrays(data, "it", DataError)
