"""A writer of TensorFlow's checkpoints, by protobuf's own library and a CRC not the reader's."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorboardX.proto import tensor_shape_pb2, types_pb2, versions_pb2
from tensorboardX.record_writer import masked_crc32c
from torch import Tensor

MAGIC = bytes.fromhex("57fb808b247547db")
NUMBERS = {
    torch.float32: types_pb2.DT_FLOAT,
    torch.float64: types_pb2.DT_DOUBLE,
    torch.float16: types_pb2.DT_HALF,
    torch.bfloat16: types_pb2.DT_BFLOAT16,
    torch.int32: types_pb2.DT_INT32,
    torch.int64: types_pb2.DT_INT64,
    torch.uint8: types_pb2.DT_UINT8,
    torch.bool: types_pb2.DT_BOOL,
}
Damage = Callable[
    [int, bytes], bytes
]  # (number of the block, content) -> content, before it gets its checksum


def write_bundle(
    prefix: Path, tensors: Mapping[str, Tensor], *, n_shards: int = 2, **table: Any
) -> None:
    """Write tensors in turn into shards, each after some unused bytes, and their index."""
    content = [bytearray(b"unused") for _ in range(n_shards)]
    entries = {}
    for number, (name, tensor) in enumerate(sorted(tensors.items())):
        entries[name.encode()] = add_tensor(content, number % n_shards, tensor)
    write_shards(prefix, content)
    write_index(prefix, entries, n_shards=n_shards, **table)


def add_tensor(content: list[bytearray], shard: int, tensor: Tensor) -> Any:
    """Append a tensor to a shard and give its entry."""
    raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    entry = new_message(
        "Entry", dtype=NUMBERS[tensor.dtype], shape=shape_of(tensor.shape), shard_id=shard
    )
    entry.offset, entry.size, entry.crc32c = len(content[shard]), len(raw), masked_crc32c(raw)
    content[shard] += raw
    return entry


def shape_of(sizes: Iterable[int]) -> Any:
    return tensor_shape_pb2.TensorShapeProto(
        dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=size) for size in sizes]
    )


def write_shards(prefix: Path, content: list[bytearray]) -> None:
    for number, raw in enumerate(content):
        Path(f"{prefix}.data-{number:05d}-of-{len(content):05d}").write_bytes(raw)


def write_index(
    prefix: Path,
    entries: Mapping[bytes, Any],
    *,
    n_shards: int = 1,
    endianness: int = 0,
    min_consumer: int = 0,
    **table: Any,
) -> None:
    version = versions_pb2.VersionDef(producer=1, min_consumer=min_consumer)
    header = new_message("Header", num_shards=n_shards, endianness=endianness, version=version)
    rows = [(b"", header), *sorted(entries.items())]
    Path(f"{prefix}.index").write_bytes(
        sorted_table(
            [(key, value.SerializeToString(deterministic=True)) for key, value in rows], **table
        )
    )


def sorted_table(
    rows: list[tuple[bytes, bytes]],
    *,
    block_rows: int = 5,
    restart_rows: int = 3,
    kind: int = 0,
    damage: Damage = lambda number, content: content,
) -> bytes:
    """Lay out a LevelDB table: rows to a block and to a restart, and a ``kind`` of compression."""
    out, handles, numbers = bytearray(), [], itertools.count()

    def put(content: bytes, kind: int = 0) -> bytes:
        stored = damage(next(numbers), content) + bytes([kind])
        handle = varint(len(out)) + varint(len(stored) - 1)
        out.extend(stored + masked_crc32c(stored).to_bytes(4, "little"))
        return handle

    for start in range(0, len(rows), block_rows):
        block = rows[start : start + block_rows]
        handles.append((block[-1][0], put(block_of(block, restart_rows), kind)))
    meta, index = put(block_of([], 1)), put(block_of(handles, 1))
    return bytes(out) + (meta + index).ljust(40, b"\0") + MAGIC


def block_of(rows: list[tuple[bytes, bytes]], restart_rows: int) -> bytes:
    out, restarts, last = bytearray(), [0], b""
    for number, (key, value) in enumerate(rows):
        shared = n_common(last, key)
        if number % restart_rows == 0:
            shared = 0
            restarts[number // restart_rows :] = [len(out)]
        out += (
            varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        )
        last = key
    return bytes(out) + b"".join(
        place.to_bytes(4, "little") for place in [*restarts, len(restarts)]
    )


def n_common(one: bytes, other: bytes) -> int:
    return sum(
        1
        for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    )


def varint(value: int) -> bytes:
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def new_message(kind: str, **fields: Any) -> Any:
    return message_factory.GetMessageClass(pool().FindMessageTypeByName(f"bundles.{kind}"))(
        **fields
    )


@cache
def pool() -> descriptor_pool.DescriptorPool:
    """Declare the messages of tensor_bundle.proto and tensor_slice.proto."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="bundles.proto", package="bundles", syntax="proto3"
    )
    declared = {
        "Extent": [("start", 1, field.TYPE_INT64), ("length", 2, field.TYPE_INT64)],
        "Slice": [("extent", 1, ".bundles.Extent*")],
        "Header": [
            ("num_shards", 1, field.TYPE_INT32),
            ("endianness", 2, field.TYPE_INT32),
            ("version", 3, ".tensorboardX.VersionDef"),
        ],
        "Entry": [
            ("dtype", 1, field.TYPE_INT32),
            ("shape", 2, ".tensorboardX.TensorShapeProto"),
            ("shard_id", 3, field.TYPE_INT32),
            ("offset", 4, field.TYPE_INT64),
            ("size", 5, field.TYPE_INT64),
            ("crc32c", 6, field.TYPE_FIXED32),
            ("slices", 7, ".bundles.Slice*"),
        ],
    }
    for kind, fields in declared.items():
        message = file.message_type.add(name=kind)
        for name, number, type_ in fields:
            row = message.field.add(name=name, number=number, label=field.LABEL_OPTIONAL)
            if isinstance(type_, int):
                row.type = type_
            else:
                row.type, row.type_name = field.TYPE_MESSAGE, type_.rstrip("*")
                row.label = field.LABEL_REPEATED if type_.endswith("*") else field.LABEL_OPTIONAL
    length = file.message_type[0]
    length.oneof_decl.add(name="has_length")
    length.field[1].oneof_index = 0
    for module in (tensor_shape_pb2, versions_pb2):
        file.dependency.append(module.DESCRIPTOR.name)
    default = descriptor_pool.Default()
    default.AddSerializedFile(file.SerializeToString())
    return default
