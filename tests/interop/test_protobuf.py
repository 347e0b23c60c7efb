"""Protobuf's wire format is read as its description says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto

from sublayer.interop.tensorflow.protobuf import Message, read_varint
from tests.interop.bundles import varint


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("00", (0, 1)),
        ("01", (1, 1)),
        ("7f", (127, 1)),
        ("8001", (128, 2)),
        ("ac02", (300, 2)),
        ("ac0207", (300, 2)),
    ],
)
def test_known_varints_are_read(data: str, expected: tuple[int, int]) -> None:
    assert read_varint(bytes.fromhex(data), 0) == expected


@given(st.integers(0, 2**64 - 1))
def test_every_varint_is_read_and_no_larger_one(value: int) -> None:
    assert read_varint(b"\xff" + varint(value), 1) == (value, 1 + len(varint(value)))
    with pytest.raises(ValueError, match="more than 64 bits|does not end"):
        read_varint(varint(value + 2**64), 0)
    with pytest.raises(ValueError, match="does not end"):
        read_varint(varint(value)[:-1], 0)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5), st.booleans())
def test_a_message_of_the_library_is_read(sizes: list[int], is_unknown: bool) -> None:
    shape = TensorShapeProto(
        dim=[TensorShapeProto.Dim(size=size, name="n") for size in sizes], unknown_rank=is_unknown
    )
    message = Message(shape.SerializeToString())
    assert [dim.integer(1) for dim in message.messages(2)] == sizes
    assert message.integer(3) == is_unknown
    assert (3 in message) == is_unknown


def test_fixed_numbers_are_read_and_the_last_of_several_counts() -> None:
    message = Message(bytes.fromhex("35 01000080 08 05 08 06 11 0200000000000000"))
    assert (message.integer(6), message.integer(1), message.integer(2)) == (0x80000001, 6, 2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("08", "does not end"),
        ("0a05 61", "5 bytes are promised where 1"),
        ("0b", "kind 3"),
        ("35 0000", "4 bytes"),
    ],
)
def test_damaged_messages_are_refused(data: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Message(bytes.fromhex(data))


def test_a_field_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="field 1 is not a number"):
        Message(bytes.fromhex("0a0161")).integer(1)
    with pytest.raises(ValueError, match="field 1 is a number"):
        Message(bytes.fromhex("0801")).messages(1)
