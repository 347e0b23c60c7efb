"""TensorFlow's checkpoints are read bit for bit, or refused in a line that names the file."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sublayer.errors import CheckpointError
from sublayer.interop.tensorflow.tensor_bundle import read_bundle
from tests.interop.bundles import (
    NUMBERS,
    add_tensor,
    new_message,
    shape_of,
    write_bundle,
    write_index,
    write_shards,
)

# As TensorFlow 2.21 wrote it: x = range(10) as int32 in the first shard, y = range(5.) as float32
# in the second.
TENSORFLOW_INDEX = bytes.fromhex(
    "0000 0608 021a 0208 0100 010f 7808 0312 0412 0208 0a28 2835 492f f9f2"
    "0001 1179 0801 1204 1202 0805 1801 2814 35f7 aa3f ee00 0000 0001 0000"
    "0000 afca b56c 0000 0000 0100 0000 00c0 f2a1 b000 0102 7a00 3900 0000"
    "0001 0000 0000 94b1 d08c 3e08 4b0e" + "00" * 36 + "57fb 808b 2475 47db"
)
SPECIAL = [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 1e-40]


def random_tensors() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(3)
    tensors = {
        f"bert/encoder/layer_{layer}/{name}": torch.randn(shape, generator=draw)
        for layer in range(11)
        for name, shape in {
            "kernel": (7, 5),
            "bias": (5,),
            "norm/gain": (),
            "empty": (0, 3),
        }.items()
    }
    for dtype in NUMBERS:
        tensors[f"dtypes/{dtype}"] = (torch.randn(3, 2, 4, generator=draw).abs() * 9).to(dtype)
    tensors["special"] = torch.tensor(SPECIAL)
    tensors["größe"] = torch.ones(2)
    return tensors


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert list(found) == sorted(expected, key=str.encode)
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(
            found[name].reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8)
        ), name


X, Y = torch.arange(10, dtype=torch.int32), torch.arange(5.0)


def write_tensorflows(folder: Path, index: bytes) -> None:
    (folder / "m.index").write_bytes(index)
    (folder / "m.data-00000-of-00002").write_bytes(X.numpy().tobytes())
    (folder / "m.data-00001-of-00002").write_bytes(Y.numpy().tobytes())


def test_a_checkpoint_of_tensorflow_is_read(tmp_path: Path) -> None:
    write_tensorflows(tmp_path, TENSORFLOW_INDEX)
    assert_same(read_bundle(tmp_path), {"x": X, "y": Y})


def test_every_byte_of_an_index_but_its_padding_is_guarded(tmp_path: Path) -> None:
    unguarded = []
    for place in range(len(TENSORFLOW_INDEX)):
        index = bytearray(TENSORFLOW_INDEX)
        index[place] ^= 0x55
        write_tensorflows(tmp_path, index)
        with suppress(CheckpointError):
            assert_same(read_bundle(tmp_path), {"x": X, "y": Y})
            unguarded.append(place)
    # The footer of 48 bytes starts with two handles of 2 bytes and ends with the magic number of 8.
    assert unguarded == list(range(142 - 48 + 4, 142 - 8))


@pytest.mark.parametrize(
    ("block_rows", "restart_rows"), [(1, 1), (4, 16), (9, 4), (100, 7), (100, 100)]
)
@pytest.mark.parametrize("n_shards", [1, 2])
def test_every_layout_gives_back_the_same_bits(
    tmp_path: Path, block_rows: int, restart_rows: int, n_shards: int
) -> None:
    tensors = random_tensors()
    write_bundle(
        tmp_path / "model.ckpt-best",
        tensors,
        n_shards=n_shards,
        block_rows=block_rows,
        restart_rows=restart_rows,
    )
    assert_same(read_bundle(tmp_path / "model.ckpt-best"), tensors)


def test_a_checkpoint_is_found_by_prefix_index_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = {"w": torch.arange(6.0).reshape(2, 3)}
    (tmp_path / "saved" / "variables").mkdir(parents=True)
    write_bundle(tmp_path / "saved" / "variables" / "variables", tensors)
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"never read")
    variables = tmp_path / "saved" / "variables"
    for path in (
        tmp_path / "saved",
        variables,
        variables / "variables",
        variables / "variables.index",
    ):
        assert_same(read_bundle(path), tensors)
    monkeypatch.chdir(variables)
    assert_same(read_bundle(Path()), tensors)


def test_strings_and_resources_are_left_out(tmp_path: Path) -> None:
    content = [bytearray()]
    entries = {b"w": add_tensor(content, 0, torch.ones(3))}
    entries[b"_CHECKPOINTABLE_OBJECT_GRAPH"] = new_message(
        "Entry", dtype=7, shape=shape_of([]), size=999
    )
    entries[b"handle"] = new_message("Entry", dtype=20, shape=shape_of([]))
    write_shards(tmp_path / "m", content)
    write_index(tmp_path / "m", entries)
    assert_same(read_bundle(tmp_path / "m"), {"w": torch.ones(3)})


def test_every_byte_of_a_bool_but_zero_is_true(tmp_path: Path) -> None:
    content = [bytearray()]
    entry = add_tensor(content, 0, torch.tensor([0, 1, 2, 255], dtype=torch.uint8))
    entry.dtype = NUMBERS[torch.bool]
    write_shards(tmp_path / "m", content)
    write_index(tmp_path / "m", {b"w": entry})
    assert_same(read_bundle(tmp_path / "m"), {"w": torch.tensor([False, True, True, True])})


@pytest.mark.parametrize(("kind", "how"), [(1, "by snappy"), (2, "in the unknown way 2")])
def test_a_compressed_index_is_refused(tmp_path: Path, kind: int, how: str) -> None:
    write_bundle(tmp_path / "m", {"x": X}, kind=kind)
    with pytest.raises(
        CheckpointError, match=f"is compressed {how}, which TensorFlow's checkpoints are not"
    ):
        read_bundle(tmp_path / "m")


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_bundle(tmp_path / "m", random_tensors())
    (tmp_path / "m.data-00001-of-00002").unlink()
    with pytest.raises(
        CheckpointError, match=r"m\.data-00001-of-00002 is missing, which m\.index promises"
    ):
        read_bundle(tmp_path / "m")


def test_a_shard_that_was_cut_short_is_named_with_both_sizes(tmp_path: Path) -> None:
    write_bundle(tmp_path / "m", {"w": torch.ones(5)}, n_shards=1)
    shard = tmp_path / "m.data-00000-of-00001"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(
        CheckpointError, match=r"m\.data-0.* is cut short: it has 25 bytes, m\.index needs 26"
    ):
        read_bundle(tmp_path / "m")


def test_a_damaged_tensor_is_named_with_both_checksums(tmp_path: Path) -> None:
    write_bundle(tmp_path / "m", {"w": torch.ones(5)}, n_shards=1)
    shard = tmp_path / "m.data-00000-of-00001"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\0")
    checksum = "0x[0-9a-f]{8}"
    said = rf"the checksum of 'w' is {checksum}, m\.index says {checksum}$"
    message = rf"m\.data-0.* is damaged: {said}"
    with pytest.raises(CheckpointError, match=message):
        read_bundle(tmp_path / "m")


@pytest.fixture(scope="module")
def bundle() -> Iterator[tuple[Path, dict[str, Tensor]]]:
    with tempfile.TemporaryDirectory() as folder:
        tensors = {
            name: tensor for name, tensor in random_tensors().items() if "layer_1" not in name
        }
        write_bundle(Path(folder) / "m", tensors, n_shards=1)
        yield Path(folder), tensors


def damaged(folder: Path, name: str, change: Callable[[bytearray], None]) -> dict[str, Tensor]:
    """Read a copy of a checkpoint of which one file was changed."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        data = bytearray((folder / name).read_bytes())
        change(data)
        (Path(copy) / name).write_bytes(data)
        return read_bundle(Path(copy))


NAMES = st.sampled_from(["m.index", "m.data-00000-of-00001"])


@given(name=NAMES, place=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255))
def test_a_changed_byte_is_refused_or_without_effect(
    bundle: Any, name: str, place: float, bits: int
) -> None:
    folder, tensors = bundle

    def flip(data: bytearray) -> None:
        data[int(place * len(data))] ^= bits

    with suppress(CheckpointError):
        assert_same(damaged(folder, name, flip), tensors)


@given(name=NAMES, place=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_short_anywhere_is_refused(bundle: Any, name: str, place: float) -> None:
    def cut(data: bytearray) -> None:
        del data[int(place * len(data)) :]

    with pytest.raises(CheckpointError, match=f"{name}.*cut short"):
        damaged(bundle[0], name, cut)


@given(
    block=st.integers(0, 3),
    place=st.floats(0, 1, exclude_max=True),
    inserted=st.binary(max_size=4)
    | st.sampled_from([b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f"]),
    n_removed=st.integers(0, 3),
)
def test_hostile_blocks_with_right_checksums_are_refused_or_read(
    block: int, place: float, inserted: bytes, n_removed: int
) -> None:
    def damage(number: int, content: bytes) -> bytes:
        at = int(place * len(content))
        return content if number != block else content[:at] + inserted + content[at + n_removed :]

    tensors = {f"layer_{number}/w": torch.arange(float(number)) for number in range(7)}
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "m"
        write_bundle(prefix, tensors, block_rows=4, damage=damage)
        with suppress(CheckpointError):
            found = read_bundle(prefix)
            assert sum(tensor.nbytes for tensor in found.values()) <= sum(
                tensor.nbytes for tensor in tensors.values()
            )
