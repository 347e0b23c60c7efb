"""A writer of TensorFlow's checkpoints: tensors in shards, and their index, a LevelDB table."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from sublayer.interop.tensorflow.crc32c import masked_crc32c

MAGIC = bytes.fromhex("57fb808b247547db")
DTYPES = {torch.float32: 1, torch.float64: 2, torch.int64: 9}
BLOCK_ROWS, RESTART_ROWS = 5, 3


def varint(value: int) -> bytes:
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def field(number: int, value: int | bytes) -> bytes:
    """Encode a field of a protobuf message: a number, or a text or message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def write_bundle(prefix: Path, tensors: Mapping[str, Tensor], *, n_shards: int = 2) -> None:
    """Write tensors in turn into shards, behind some unused bytes, and their index."""
    shards = [bytearray(b"unused") for _ in range(n_shards)]
    rows = [(b"", field(1, n_shards) + field(3, field(1, 1)))]
    for number, (name, tensor) in enumerate(sorted(tensors.items())):
        shard, raw = number % n_shards, tensor.contiguous().numpy().tobytes()
        shape = b"".join(field(2, field(1, size)) for size in tensor.shape)
        entry = field(1, DTYPES[tensor.dtype]) + field(2, shape) + field(3, shard)
        entry += field(4, len(shards[shard])) + field(5, len(raw))
        entry += varint(6 << 3 | 5) + masked_crc32c(raw).to_bytes(4, "little")
        rows.append((name.encode(), entry))
        shards[shard] += raw
    for number, content in enumerate(shards):
        Path(f"{prefix}.data-{number:05d}-of-{n_shards:05d}").write_bytes(content)
    Path(f"{prefix}.index").write_bytes(sorted_table(rows))


def sorted_table(rows: list[tuple[bytes, bytes]]) -> bytes:
    """Lay out a LevelDB table of blocks, each with its checksum, and their index."""
    out, handles = bytearray(), []

    def put(rows: list[tuple[bytes, bytes]], restart_rows: int) -> bytes:
        stored = block_of(rows, restart_rows) + b"\0"
        handle = varint(len(out)) + varint(len(stored) - 1)
        out.extend(stored + masked_crc32c(stored).to_bytes(4, "little"))
        return handle

    for start in range(0, len(rows), BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS]
        handles.append((block[-1][0], put(block, RESTART_ROWS)))
    footer = put([], 1) + put(handles, 1)
    return bytes(out) + footer.ljust(40, b"\0") + MAGIC


def block_of(rows: list[tuple[bytes, bytes]], restart_rows: int) -> bytes:
    """Lay out rows whose keys share their beginning with the key before, but at restarts."""
    out, restarts, last = bytearray(), [0], b""
    for number, (key, value) in enumerate(rows):
        pairs = zip(last, key, strict=False)
        shared = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(last), len(key)))
        if number % restart_rows == 0:
            shared = 0
            restarts[number // restart_rows :] = [len(out)]
        out += varint(shared) + varint(len(key) - shared) + varint(len(value))
        out += key[shared:] + value
        last = key
    ends = [*restarts, len(restarts)]
    return bytes(out) + b"".join(place.to_bytes(4, "little") for place in ends)
