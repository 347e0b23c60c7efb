"""Sorted string tables, LevelDB's files of keys and values, as TensorFlow writes them: read only.

Source: LevelDB's table_format.md; the magic number is the one of LevelDB and TensorFlow.
"""

from collections.abc import Iterator

from sublayer.interop.tensorflow.crc32c import masked_crc32c
from sublayer.interop.tensorflow.protobuf import read_varint, take

_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER_BYTES = 48
_CHECKSUM_BYTES = 4
_TRAILER_BYTES = 1 + _CHECKSUM_BYTES
_RESTART_BYTES = 4
_PLAIN = 0
_SNAPPY = 1
# Longer names than any model has; a key repeats the one before it, so that a small file could hold
# very many.
_MAX_KEY_BYTES = 4096
_MAX_KEYS_BYTES = 64 << 20

Handle = tuple[int, int]  # the first byte of a block, and its bytes without the trailer


def is_table(data: bytes) -> bool:
    """Return whether a file that ends with these bytes, 8 or more, is a sorted string table."""
    return data.endswith(_MAGIC)


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a whole file in the order of the keys, which are distinct.

    Raises ValueError where the file is damaged, cut short or compressed: every block's checksum is
    verified before what stands in it is read.
    """
    if len(data) < _FOOTER_BYTES or not is_table(data):
        raise ValueError(
            "it does not end with a table's magic number: it is cut short, or something else"
        )
    blocks = data[:-_FOOTER_BYTES]
    last = None
    n_bytes = 0
    for block in _data_blocks(blocks, data[-_FOOTER_BYTES:]):
        for key, content in _entries(block):
            if last is not None and key <= last:
                raise ValueError("its keys are not in order")
            last = key
            n_bytes += len(key)
            if n_bytes > _MAX_KEYS_BYTES:
                raise ValueError(f"its keys have more than {_MAX_KEYS_BYTES:,} bytes")
            yield key, content


def _data_blocks(blocks: bytes, footer: bytes) -> Iterator[bytes]:
    meta, position = _read_handle(footer, 0)
    index, _ = _read_handle(footer, position)
    # Nothing in the meta-index is used; reading it verifies its checksum.
    _read_block(blocks, meta)
    end = 0
    for _, value in _entries(_read_block(blocks, index)):
        handle, _ = _read_handle(value, 0)
        start, n_bytes = handle
        if start < end:
            raise ValueError("its blocks are not in order")
        end = start + n_bytes
        yield _read_block(blocks, handle)


def _read_handle(data: bytes, position: int) -> tuple[Handle, int]:
    offset, position = read_varint(data, position)
    n_bytes, position = read_varint(data, position)
    return (offset, n_bytes), position


def _read_block(blocks: bytes, handle: Handle) -> bytes:
    offset, n_bytes = handle
    block, _ = take(blocks, offset, n_bytes + _TRAILER_BYTES)
    stored = int.from_bytes(block[-_CHECKSUM_BYTES:], "little")
    computed = masked_crc32c(block[:-_CHECKSUM_BYTES])
    if computed != stored:
        raise ValueError(
            f"the checksum of the block at byte {offset} is {computed:#010x}, not {stored:#010x}"
        )
    compression = block[n_bytes]
    if compression != _PLAIN:
        how = "by snappy" if compression == _SNAPPY else f"in the unknown way {compression}"
        raise ValueError(
            f"the block at byte {offset} is compressed {how}, "
            "which TensorFlow's checkpoints are not"
        )
    return block[:n_bytes]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Read a block's entries, each key written as what differs from the one before it."""
    n_restarts = int.from_bytes(block[-_RESTART_BYTES:], "little")
    # The restarts and their number, after the entries, only help a search.
    end = len(block) - _RESTART_BYTES * (n_restarts + 1)
    if len(block) < _RESTART_BYTES or end < 0:
        raise ValueError(f"a block of {len(block)} bytes cannot have {n_restarts} restarts")
    entries = block[:end]
    position = 0
    key = b""
    while position < end:
        n_shared, position = read_varint(entries, position, bits=32)
        n_rest, position = read_varint(entries, position, bits=32)
        n_value, position = read_varint(entries, position, bits=32)
        if n_shared > len(key) or n_shared + n_rest > _MAX_KEY_BYTES:
            raise ValueError(
                f"a key shares {n_shared} bytes with one of {len(key)} and has {n_rest} more"
            )
        rest, position = take(entries, position, n_rest)
        key = key[:n_shared] + rest
        value, position = take(entries, position, n_value)
        yield key, value
