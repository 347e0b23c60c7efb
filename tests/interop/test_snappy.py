"""Snappy's format is read as its description says, and nothing else is."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.interop.snappy import decompress
from tests.interop.bundles import snappy


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("00", b""),
        ("0510 68656c6c6f", b"hello"),
        # Two letters, then a copy of six bytes from two back, with offsets of 11, 16 and 32 bits.
        ("08 04 6162 09 02", b"abababab"),
        ("08 04 6162 16 0200", b"abababab"),
        ("08 04 6162 17 02000000", b"abababab"),
        # A literal of 61 bytes takes a byte of its own for its length less one, a longer one up to four.
        ("3d f0 3c" + "61" * 61, b"a" * 61),
        ("3d fc 3c000000" + "61" * 61, b"a" * 61),
        # Three upper bits of an offset stand in the tag: 300 is 1 << 8 | 44.
        ("b002 f4 2b01" + "62" * 300 + "21 2c", b"b" * 304),
    ],
)
def test_known_bytes_are_decompressed(data: str, expected: bytes) -> None:
    assert decompress(bytes.fromhex(data)) == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "does not end"),
        ("05 10 68656c6c", "5 bytes are promised where 4 are left"),
        ("05 0c 68656c6c", "5 bytes are promised"),
        ("04 10 68656c6c6f", "4 bytes are promised"),
        ("08 04 6162 09 03", "reaches 3 bytes back where there are 2"),
        ("08 04 6162 09 00", "reaches 0 bytes back"),
        ("08 04 6162 16 02", "2 bytes are promised where 1 are left"),
        ("ffffffff0f 00 61", "7 bytes cannot hold 4294967295"),
        ("ffffffff1f 00 61", "more than 32 bits"),
    ],
)
def test_damaged_bytes_are_refused(data: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decompress(bytes.fromhex(data))


@given(st.lists(st.sampled_from([b"weight", b"bias", b"\0\0\0\0\0\0\0", b"x"]) | st.binary(max_size=70), max_size=40))
def test_what_was_compressed_comes_back(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    assert decompress(snappy(data)) == data


@given(st.binary(max_size=60))
def test_any_bytes_are_decompressed_or_refused(data: bytes) -> None:
    with suppress(ValueError):
        assert len(decompress(data)) <= 22 * len(data)
