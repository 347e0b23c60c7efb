"""The checksum agrees with published values and with another implementation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboardX.crc32c import crc32c as slow_crc32c

from sublayer.interop.tensorflow.crc32c import crc32c, masked_crc32c


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        # RFC 3720, appendix B.4.
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_published_values_are_met(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected
    assert crc32c(np.frombuffer(data, np.uint8)) == expected


def test_a_stored_checksum_is_rotated_by_15_bits_and_moved_by_a_constant() -> None:
    # 0xe3069283 rotated is 0x2507c60d; 0xa282ead8 is added.
    assert masked_crc32c(b"123456789") == 0xC78AB0E5
    # An empty block as it ends every table: no entries, one restart at 0, not compressed.
    assert masked_crc32c(bytes.fromhex("000000000100000000")) == 0xB0A1F2C0


@given(st.binary(max_size=300))
def test_any_bytes_give_what_another_implementation_gives(data: bytes) -> None:
    assert crc32c(data) == slow_crc32c(data)


@pytest.mark.parametrize(
    "n_bytes", [(1 << 18) - 1, 1 << 18, (1 << 18) + 1, (1 << 18) + 4, (1 << 19) + 7]
)
def test_more_than_a_row_gives_what_another_implementation_gives(n_bytes: int) -> None:
    data = np.random.default_rng(n_bytes).bytes(n_bytes)
    assert crc32c(data) == slow_crc32c(data)
