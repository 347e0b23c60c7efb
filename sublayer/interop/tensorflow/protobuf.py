"""Protobuf's wire format, as far as the few messages of a checkpoint need it; nothing is trusted.

Source: protobuf.dev, "Encoding".
"""

from collections.abc import Iterator

_MAX_VARINT_BYTES = 10
# Each byte of a varint holds 7 bits of the number; its highest bit says that more bytes follow.
_VALUE_BITS = 7
_VALUE_MASK = 0x7F
_MORE_FOLLOWS = 0x80
# The kind of a field is in the lowest bits of its tag, above them its number.
_KIND_BITS = 3
_KIND_MASK = 7
_VARINT = 0
_FIXED64 = 1
_BYTES = 2
_FIXED32 = 5


class Message:
    """The fields of one protobuf message, by number; what a field means is for the caller to know.

    Raises ValueError where the bytes are no such message.
    """

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = {}
        for number, value in _read_fields(data):
            values = self._fields.setdefault(number, [])
            values.append(value)

    def __contains__(self, field: int) -> bool:
        return field in self._fields

    def integer(self, field: int) -> int:
        """Return a signed integer of up to 64 bits, 0 where it is left out, as protobuf means it.

        Raises ValueError if the field is something else.
        """
        values = self._fields.get(field, [0])
        # Of a field that is given again, the last value counts.
        value = values[-1]
        if isinstance(value, bytes):
            raise ValueError(f"field {field} is not a number")
        is_negative = value >= 1 << 63
        return value - (1 << 64) if is_negative else value

    def messages(self, field: int) -> list["Message"]:
        """Return the messages that a field holds, in their order.

        Raises ValueError if it holds something else.
        """
        values = self._fields.get(field, [])
        return [Message(_as_bytes(field, value)) for value in values]


def read_varint(data: bytes, start: int, *, bits: int = 64) -> tuple[int, int]:
    """Read an unsigned number of so many ``bits`` from byte ``start`` and return where it ends.

    Its lowest bits come first. Raises ValueError where the bytes end too early or the number is
    too large.
    """
    value = 0
    encoded = data[start : start + _MAX_VARINT_BYTES]
    for index, byte in enumerate(encoded):
        value |= (byte & _VALUE_MASK) << (_VALUE_BITS * index)
        if byte & _MORE_FOLLOWS:
            continue
        if value >> bits:
            raise ValueError(f"a number has more than {bits} bits")
        return value, start + index + 1
    raise ValueError("a number does not end")


def take(data: bytes, start: int, n_bytes: int) -> tuple[bytes, int]:
    """Return ``n_bytes`` bytes from byte ``start`` on, and where they end.

    Raises ValueError where there are fewer.
    """
    end = start + n_bytes
    if end > len(data):
        n_left = max(0, len(data) - start)
        raise ValueError(f"{n_bytes} bytes are promised where {n_left} are left")
    return data[start:end], end


def _read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = read_varint(data, position, bits=32)
        number = tag >> _KIND_BITS
        kind = tag & _KIND_MASK
        value: int | bytes
        if kind == _VARINT:
            value, position = read_varint(data, position)
        elif kind == _BYTES:
            n_bytes, position = read_varint(data, position)
            value, position = take(data, position, n_bytes)
        elif kind in (_FIXED32, _FIXED64):
            n_bytes = 4 if kind == _FIXED32 else 8
            content, position = take(data, position, n_bytes)
            value = int.from_bytes(content, "little")
        else:
            raise ValueError(f"field {number} is of kind {kind}, which protobuf has not")
        yield number, value


def _as_bytes(field: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError(f"field {field} is a number where a message should be")
    return value
