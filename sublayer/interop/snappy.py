"""Snappy's compressed format, read only."""

from sublayer.interop.protobuf import read_varint, take

# A copy of 64 bytes takes 3, one of 11 takes 2: nothing grows more than so many times.
_MAX_GROWTH = 22
_LITERAL, _COPY_1, _COPY_2 = 0, 1, 2


def decompress(data: bytes) -> bytes:
    """Give the bytes that snappy compressed.

    Raises ValueError where the data is damaged; what is made is never longer than the data could say.
    Source: snappy's format_description.txt.
    """
    n_bytes, position = read_varint(data, 0, bits=32)
    if n_bytes > _MAX_GROWTH * len(data):
        raise ValueError(f"snappy: {len(data)} bytes cannot hold {n_bytes}")
    out = bytearray()
    while position < len(data):
        tag = data[position]
        if tag & 3 == _LITERAL:
            length, position = _literal_length(data, position)
            literal, position = take(data, position, length)
            out += literal
        else:
            length, offset, position = _copy(data, position)
            if not 0 < offset <= len(out):
                raise ValueError(f"snappy: a copy reaches {offset} bytes back where there are {len(out)}")
            repeated = out[-offset : len(out) - offset + length]
            # A copy may overlap with what it makes: its bytes then repeat.
            out += (repeated * -(-length // len(repeated)))[:length]
        if len(out) > n_bytes:
            break
    if len(out) != n_bytes:
        raise ValueError(f"snappy: {n_bytes} bytes are promised, and others come")
    return bytes(out)


def _literal_length(data: bytes, position: int) -> tuple[int, int]:
    length = data[position] >> 2
    if length < 60:
        return length + 1, position + 1
    content, position = take(data, position + 1, length - 59)
    return int.from_bytes(content, "little") + 1, position


def _copy(data: bytes, position: int) -> tuple[int, int, int]:
    tag = data[position]
    if tag & 3 == _COPY_1:
        low, position = take(data, position + 1, 1)
        return ((tag >> 2) & 7) + 4, (tag >> 5) << 8 | low[0], position
    content, position = take(data, position + 1, 2 if tag & 3 == _COPY_2 else 4)
    return (tag >> 2) + 1, int.from_bytes(content, "little"), position
