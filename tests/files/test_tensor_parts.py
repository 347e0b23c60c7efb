"""Tensors in parts: put together, or refused where they do not make whole ones."""

import json

import pytest
import torch
from safetensors.torch import save_file

from sublayer.errors import CheckpointError
from sublayer.files.tensor_headers import Header
from sublayer.files.tensor_parts import StoredTensors, read_stored, read_stored_headers

WIDE = torch.arange(12.0).reshape(3, 4)
TALL = torch.arange(10.0).reshape(5, 2)


def write_part(folder, number, **slices):
    """Write slices, each with where it begins."""
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


def test_parts_are_put_together(stored):
    assert not stored.is_whole
    assert read_stored_headers(stored) == {
        "wide": Header([3, 4], "F32"),
        "tall": Header([5, 2], "F32"),
    }
    found = read_stored(stored)
    assert torch.equal(found["wide"], WIDE)
    assert torch.equal(found["tall"], TALL)


def test_where_there_is_a_whole_file_parts_beside_it_are_not_read(stored):
    save_file({"wide": -WIDE}, stored.whole)
    assert stored.is_whole
    assert read_stored(stored).keys() == {"wide"}
    assert read_stored_headers(stored) == {"wide": Header([3, 4], "F32")}


def test_a_gap_is_refused_by_name(stored):
    write_part(stored.folder, 1, tall=(TALL[:3], [0, 0]), wide=(WIDE[:2, :2], [0, 0]))
    for read in (read_stored_headers, read_stored):
        with pytest.raises(CheckpointError, match="has no whole wide: a part is missing"):
            read(stored)


@pytest.mark.parametrize(
    "offsets", ['{"wide": {}}', "[]", "{", '{"wide": {"saved_offsets": [-1]}}']
)
def test_a_part_that_does_not_say_where_it_begins_is_damaged(stored, offsets):
    path = stored.folder / "shard-00001-model-00001-of-00001.safetensors"
    save_file({"wide": WIDE}, path, metadata={"DCP_SHARDING_INFO": offsets})
    with pytest.raises(CheckpointError, match=r"shard-00001\S+ "):
        read_stored(stored)


def test_slices_of_other_types_make_no_tensor(stored):
    write_part(stored.folder, 1, wide=(WIDE[:, :2].double(), [0, 0]), tall=(TALL[:3], [0, 0]))
    with pytest.raises(CheckpointError, match="has no whole wide"):
        read_stored_headers(stored)


def test_slices_that_overlap_and_leave_as_large_a_gap_are_refused(stored):
    # Rows 0 and 1 twice, 3 and 4 once, of five and with none missing in number but row 2.
    write_part(stored.folder, 1, wide=(WIDE, [0, 0]), tall=(TALL[:2], [0, 0]))
    write_part(stored.folder, 2, tall=(TALL[3:], [3, 0]))
    write_part(stored.folder, 3, tall=(TALL[1:2], [1, 0]))
    for read in (read_stored_headers, read_stored):
        with pytest.raises(CheckpointError, match="has no whole tall"):
            read(stored)


def test_slices_along_two_axes_are_refused(stored):
    write_part(stored.folder, 1, tall=(TALL, [0, 0]), wide=(WIDE[:1], [0, 0]))
    write_part(stored.folder, 2, wide=(WIDE[1:, :2], [1, 0]))
    write_part(stored.folder, 3, wide=(WIDE[1:, 2:], [1, 2]))
    with pytest.raises(CheckpointError, match="has no whole wide"):
        read_stored(stored)


def test_numbers_that_no_weights_are_made_of_are_refused(stored):
    for number, start in ((1, 0), (2, 2)):
        part = (WIDE[:, start : start + 2].int(), [0, start])
        write_part(stored.folder, number, wide=part)
    with pytest.raises(CheckpointError, match=r"shard-00001\S+ has wide as I32"):
        read_stored(stored)


def test_of_several_parts_the_damaged_one_is_named(stored):
    (second,) = stored.folder.glob("shard-00002*")
    second.write_bytes(second.read_bytes()[:-1])
    for read in (read_stored_headers, read_stored):
        with pytest.raises(CheckpointError, match=r"shard-00002\S+ is damaged or cut short"):
            read(stored)


def test_errors_say_how_many_parts_there_are(stored, tmp_path):
    assert stored.described == f"{tmp_path}, in 2 parts,"
    next(stored.folder.glob("shard-00002*")).unlink()
    assert stored.described == f"{tmp_path}, in 1 part,"
    save_file({"wide": WIDE}, stored.whole)
    assert stored.described == str(stored.whole)


def test_nothing_at_all_is_the_missing_whole_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_stored(StoredTensors(tmp_path / "model.safetensors", tmp_path))
