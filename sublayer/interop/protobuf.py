"""Protobuf's wire format, as far as reading the few messages of a checkpoint needs it; nothing is trusted."""

from collections.abc import Iterator

_MAX_VARINT_BYTES = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Message:
    """The fields of one protobuf message, by number; what a field means is for the caller to know.

    Raises ValueError where the bytes are no such message.
    """

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = {}
        for number, value in _read_fields(data):
            self._fields.setdefault(number, []).append(value)

    def __contains__(self, field: int) -> bool:
        return field in self._fields

    def integer(self, field: int) -> int:
        """Give a signed integer of up to 64 bits, 0 where it is left out. Raises ValueError if it is something else."""
        value = self._fields.get(field, [0])[-1]
        if isinstance(value, bytes):
            raise ValueError(f"field {field} is not a number")
        return value - (1 << 64) if value >= 1 << 63 else value

    def messages(self, field: int) -> list["Message"]:
        """Give the messages that a field holds, in their order. Raises ValueError if it holds something else."""
        return [Message(_as_bytes(field, value)) for value in self._fields.get(field, [])]


def read_varint(data: bytes, start: int, *, bits: int = 64) -> tuple[int, int]:
    """Read an unsigned number of so many ``bits`` from byte ``start`` and say where it ends.

    Seven bits stand in each byte, the lowest first; the eighth says that more follow.
    Raises ValueError where the bytes end too early or the number is too large.
    """
    value = 0
    for place, byte in enumerate(data[start : start + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if value >> bits:
                raise ValueError(f"a number has more than {bits} bits")
            return value, start + place + 1
    raise ValueError("a number does not end")


def take(data: bytes, start: int, n_bytes: int) -> tuple[bytes, int]:
    """Give ``n_bytes`` bytes from byte ``start`` on, and where they end. Raises ValueError where there are fewer."""
    end = start + n_bytes
    if end > len(data):
        raise ValueError(f"{n_bytes} bytes are promised where {max(0, len(data) - start)} are left")
    return data[start:end], end


def _read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = read_varint(data, position, bits=32)
        number, kind = tag >> 3, tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, position = read_varint(data, position)
        elif kind == _BYTES:
            n_bytes, position = read_varint(data, position)
            value, position = take(data, position, n_bytes)
        elif kind in (_FIXED32, _FIXED64):
            content, position = take(data, position, 4 if kind == _FIXED32 else 8)
            value = int.from_bytes(content, "little")
        else:
            raise ValueError(f"field {number} is of kind {kind}, which protobuf has not")
        yield number, value


def _as_bytes(field: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError(f"field {field} is a number where a message should be")
    return value
