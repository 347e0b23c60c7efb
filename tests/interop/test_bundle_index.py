"""The index of a TensorFlow checkpoint is understood, or refused in a line that names the file."""

from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer.errors import CheckpointError
from sublayer.interop.tensorflow.bundle_index import find_index
from sublayer.interop.tensorflow.tensor_bundle import read_bundle
from tests.interop.bundles import (
    MAGIC,
    add_tensor,
    shape_of,
    sorted_table,
    write_index,
    write_shards,
)

HEADER = (b"", b"\x08\x01")
STRING = b"\x08\x07"


def test_a_folder_with_none_or_several_asks_for_one(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"has no TensorFlow checkpoint: no file there ends in \.index"
    ):
        find_index(tmp_path)
    for name in ("model.ckpt-2", "model.ckpt-1"):
        write_index(tmp_path / name, {})
    with pytest.raises(
        CheckpointError, match=r"several .*: name one of model\.ckpt-1\.index, model\.ckpt-2\.index"
    ):
        find_index(tmp_path)


def test_a_checkpoint_of_the_old_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.ckpt").write_bytes(sorted_table([(b"", b"\x0a\x00")]))
    with pytest.raises(
        CheckpointError, match=r"model\.ckpt is a checkpoint in TensorFlow's old format V1.*save it"
    ):
        find_index(tmp_path / "model.ckpt")


@pytest.mark.parametrize(
    "name", ["other.ckpt", "model.ckpt.data-00000-of-00001", "model.ckpt.meta"]
)
def test_another_file_asks_for_the_prefix(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.ckpt.data-00000-of-00001").write_bytes(b"")
    (tmp_path / "model.ckpt.meta").write_bytes(b"graph")
    with pytest.raises(
        CheckpointError, match=rf"{name} is not a TensorFlow checkpoint: there is no {name}\.index"
    ):
        find_index(tmp_path / name)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"endianness": 1}, "big-endian"),
        ({"n_shards": 0}, "it has 0 shards"),
        ({"min_consumer": 2}, "it is of version 2, and 1 is the newest"),
    ],
)
def test_a_header_that_is_not_understood_is_refused(
    tmp_path: Path, header: dict[str, int], message: str
) -> None:
    write_index(tmp_path / "m", {}, **header)
    with pytest.raises(CheckpointError, match=rf"m\.index cannot be read as .*: .*{message}"):
        read_bundle(tmp_path / "m")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": 0}, "'w' is of TensorFlow's dtype number 0"),
        ({"dtype": 8}, "'w' is of TensorFlow's dtype number 8"),
        ({"dtype": 2}, r"'w' has 20 bytes, its shape \[5\] needs 40"),
        ({"shape": shape_of([4])}, r"'w' has 20 bytes, its shape \[4\] needs 16"),
        ({"shape": shape_of([-5])}, "the shape of 'w' is not known"),
        ({"shape": shape_of([2**62, 2**62, 0])}, "the shape of 'w' is too large"),
        ({"shape": shape_of([1] * 65)}, "the shape of 'w' is too large"),
        ({"size": 2**60, "shape": shape_of([2**58])}, "the shape of 'w' is too large"),
        ({"size": 2**40, "shape": shape_of([2**38])}, "cut short: it has 20 bytes"),
        ({"offset": 1}, "cut short: it has 20 bytes, m.index needs 21"),
        ({"offset": -1}, "'w' stands in shard 0 of 1 at byte -1"),
        ({"shard_id": 1}, "'w' stands in shard 1 of 1"),
        ({"shard_id": -1}, "'w' stands in shard -1 of 1"),
        ({"crc32c": 5}, "index says 0x00000005"),
    ],
)
def test_an_entry_that_cannot_be_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    content = [bytearray()]
    entry = add_tensor(content, 0, torch.ones(5))
    for name, value in change.items():
        if name == "shape":
            entry.shape.CopyFrom(value)
        else:
            setattr(entry, name, value)
    write_shards(tmp_path / "m", content)
    write_index(tmp_path / "m", {b"w": entry})
    with pytest.raises(CheckpointError, match=message) as caught:
        read_bundle(tmp_path / "m")
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "m.") in str(caught.value)


def test_tensors_that_share_bytes_cannot_ask_for_more_than_the_file_has(tmp_path: Path) -> None:
    content = [bytearray()]
    entry = add_tensor(content, 0, torch.ones(5))
    write_shards(tmp_path / "m", content)
    write_index(tmp_path / "m", {f"w{number}".encode(): entry for number in range(100)})
    with pytest.raises(CheckpointError, match=r"it has 20 bytes, m\.index needs 2000"):
        read_bundle(tmp_path / "m")


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    content = [bytearray()]
    entry = add_tensor(content, 0, torch.ones(5))
    write_shards(tmp_path / "m", content)
    write_index(tmp_path / "m", {b"\xfe": entry})
    with pytest.raises(CheckpointError, match=r"m\.index is damaged: a name is not UTF-8"):
        read_bundle(tmp_path / "m")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cut short, or something else"),
        (MAGIC, "cut short, or something else"),
        (bytes(100), "cut short, or something else"),
        (b"\xff" * 40 + MAGIC, "a number does not end"),
        (bytes(40) + MAGIC, "5 bytes are promised where 0 are left"),
        (sorted_table([]), "it has no header"),
        (sorted_table([(b"w", b"")]), "it has no header"),
        (sorted_table([HEADER, (b"b", STRING), (b"a", STRING)]), "its keys are not in order"),
        (
            sorted_table([HEADER, (b"k" * 5000, STRING)]),
            "a key shares 0 bytes with one of 0 and has 5000",
        ),
        (
            sorted_table([HEADER], damage=lambda _, content: b"\x01" + content[1:]),
            "shares 1 bytes with one of 0",
        ),
        (sorted_table([HEADER], damage=lambda *_: b"\xff" * 9), "cannot have 4294967295"),
    ],
)
def test_an_index_that_is_no_table_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "m.index").write_bytes(data)
    with pytest.raises(CheckpointError, match=rf"m\.index cannot be read as .*: .*{message}"):
        read_bundle(tmp_path / "m")


def test_blocks_that_are_read_twice_are_refused(tmp_path: Path) -> None:
    def repeat_first(number: int, content: bytes) -> bytes:
        # The index block, third of all, points to the only block of rows; the same handle stands in
        # it once more.
        return content if number != 2 else content[:-8] * 2 + content[-8:]

    (tmp_path / "m.index").write_bytes(sorted_table([HEADER], damage=repeat_first))
    with pytest.raises(CheckpointError, match="its blocks are not in order"):
        read_bundle(tmp_path / "m")
