"""Tensors in parts, put together or refused, and small arrays in a file."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from sublayer.errors import CheckpointError, DataError
from sublayer.files.arrays import dump_arrays, load_arrays
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


def test_parts_are_put_together_where_there_is_no_whole_file(stored):
    assert not stored.is_whole
    assert stored.described == f"{stored.folder}, in 2 parts,"
    wide = Header([3, 4], "F32")
    assert read_stored_headers(stored) == {"wide": wide, "tall": Header([5, 2], "F32")}
    found = read_stored(stored)
    assert torch.equal(found["wide"], WIDE) and torch.equal(found["tall"], TALL)
    save_file({"wide": -WIDE}, stored.whole)
    assert stored.is_whole and stored.described == str(stored.whole)
    assert read_stored(stored)["wide"].tolist() == (-WIDE).tolist()
    assert read_stored_headers(stored) == {"wide": wide}
    with pytest.raises(FileNotFoundError):
        read_stored(StoredTensors(stored.folder / "other.safetensors", stored.folder / "none"))


CROSS = [(WIDE[:1], [0, 0]), (WIDE[1:, :2], [1, 0]), (WIDE[1:, 2:], [1, 2])]
# Rows 0 and 1, 3 and 4, and 1 once more, of five: none is missing in number but row 2.
OVERLAP = [(TALL[:2], [0, 0]), (TALL[3:], [3, 0]), (TALL[1:2], [1, 0])]


@pytest.mark.parametrize(
    ("name", "slices", "message"),
    [
        ("wide", [(WIDE[:2, :2], [0, 0])], "has no whole wide: a part is missing"),
        ("wide", [(WIDE[:, :2].double(), [0, 0])], "has no whole wide"),
        ("tall", OVERLAP, "has no whole tall"),
        ("wide", CROSS, "has no whole wide"),
        (
            "wide",
            [(WIDE[:, :2].int(), [0, 0]), (WIDE[:, 2:].int(), [0, 2])],
            r"shard-00001\S+ has wide as I32",
        ),
    ],
)
def test_slices_that_make_no_weights_are_refused(stored, name, slices, message):
    for number, part in enumerate(slices, 1):
        write_part(stored.folder, number, **{name: part})
    for read in (read_stored_headers, read_stored):
        with pytest.raises(CheckpointError, match=message):
            read(stored)


@pytest.mark.parametrize("offsets", ['{"wide": {}}', "{", '{"wide": {"saved_offsets": [-1]}}'])
def test_a_damaged_part_is_named(stored, offsets):
    path = stored.folder / "shard-00001-model-00001-of-00001.safetensors"
    save_file({"wide": WIDE}, path, metadata={"DCP_SHARDING_INFO": offsets})
    with pytest.raises(CheckpointError, match=r"shard-00001\S+ "):
        read_stored(stored)
    save_file({"wide": WIDE}, path)
    (second,) = stored.folder.glob("shard-00002*")
    second.write_bytes(second.read_bytes()[:-1])
    for read in (read_stored_headers, read_stored):
        with pytest.raises(CheckpointError, match=r"shard-00002\S+ is damaged or cut short"):
            read(stored)


def test_arrays_and_their_header_are_read_back():
    data = dump_arrays({"counts": np.array([[3, 300]]), "shares": np.array([0.25])}, {"n": [1]})
    arrays, header = load_arrays(data, "it", DataError)
    assert header == {"n": [1]}
    assert arrays["counts"].tolist() == [[3, 300]] and arrays["counts"].dtype == np.uint16
    assert arrays["shares"].tolist() == [0.25]


@pytest.mark.parametrize("dtype", [None, "BOOL", "F16", ["U8"]])
def test_arrays_of_no_numbers_are_refused(dtype):
    entry = {"dtype": dtype, "shape": [1], "data_offsets": [0, 1]}
    head = json.dumps({"__metadata__": {"header": "{}"}, "values": entry}).encode()
    with pytest.raises(DataError, match="it: 'values' is no array of numbers"):
        load_arrays(len(head).to_bytes(8, "little") + head + b"\0", "it", DataError)
