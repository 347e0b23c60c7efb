"""The checksum of TensorFlow's files: CRC-32C (Castagnoli), also masked as it is stored."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

# The polynomial with its bits reversed: the lowest bit of a register is the highest power.
_POLYNOMIAL = np.uint32(0x82F63B78)
_ALL_ONES = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8
_OCTET_MASK = np.uint32(0xFF)
_HALF_MASK = np.uint32(0xFFFF)
_OCTET_BITS = np.uint32(8)
_HALF_BITS = np.uint32(16)
_WORD_BYTES = 4
# Words of 4 bytes that are folded at once: 256 KiB stay in a processor's cache.
_ROW_WORDS = 1 << 16

Octets = bytes | NDArray[np.uint8]
Words = NDArray[np.uint32]


def masked_crc32c(data: Octets) -> int:
    """Return the CRC-32C of some bytes as TensorFlow and LevelDB store it.

    It is rotated and a constant added, so that a file may hold checksums of what holds checksums.
    """
    crc = crc32c(data)
    low = crc >> 15
    high = crc << 17
    masked = (low | high) + _MASK_DELTA
    return masked & _ALL_ONES


def crc32c(data: Octets) -> int:
    """Return the CRC-32C of some bytes: 32 bits, 0 of no bytes.

    The register is linear in the data, so that words far apart are brought together: a word moved
    by n words is multiplied by x^(32n) modulo the polynomial. Whole rows are folded into one, which
    is halved until it is a word.
    """
    octets = np.frombuffer(data, np.uint8)
    n_in_words = len(octets) // _WORD_BYTES * _WORD_BYTES
    register = _ALL_ONES
    if n_in_words:
        words = octets[:n_in_words].view("<u4")
        folded = _fold(words)
        register = int(_move(folded, 1)[0])
    table = _octet_table().tolist()
    for octet in octets[n_in_words:].tolist():
        low = (register ^ octet) & 0xFF
        register = table[low] ^ (register >> 8)
    return register ^ _ALL_ONES


def _fold(words: Words) -> Words:
    """Reduce words to one word with the same remainder, the register's initial value included."""
    next_power_of_two = 1 << (len(words) - 1).bit_length()
    width = min(_ROW_WORDS, next_power_of_two)
    # Words of zeros before the first one change nothing, so that the first row may be short.
    n_first = (len(words) - 1) % width + 1
    row = np.zeros(width, np.uint32)
    row[width - n_first :] = words[:n_first]
    row[width - n_first] ^= np.uint32(_ALL_ONES)
    for following in words[n_first:].reshape(-1, width):
        row = _move(row, width) ^ following
    while len(row) > 1:
        half = len(row) // 2
        row = _move(row[:half], half) ^ row[half:]
    return row


def _move(words: Words, n_words: int) -> Words:
    """Follow every word by ``n_words`` words of zeros, a power of two."""
    low_table, high_table = _move_tables(n_words)
    low = words & _HALF_MASK
    high = words >> _HALF_BITS
    moved: Words = low_table[low] ^ high_table[high]
    return moved


@cache
def _move_tables(n_words: int) -> tuple[Words, Words]:
    """Tabulate moves by ``n_words`` words for the lower and the upper 16 bits of a word."""
    moved = np.uint32(1) << np.arange(32, dtype=np.uint32)
    if n_words == 1:
        for _ in range(_WORD_BYTES):
            low = moved & _OCTET_MASK
            moved = _octet_table()[low] ^ (moved >> _OCTET_BITS)
    else:
        half = n_words // 2
        moved = _move(_move(moved, half), half)
    return _span(moved[:16]), _span(moved[16:])


@cache
def _octet_table() -> Words:
    remainders = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        is_odd = (remainders & 1).astype(bool)
        shifted = remainders >> np.uint32(1)
        remainders = np.where(is_odd, shifted ^ _POLYNOMIAL, shifted)
    return remainders


def _span(bits: Words) -> Words:
    """Tabulate a linear function by its values at single bits."""
    table = np.zeros(1, np.uint32)
    for value in bits:
        table = np.concatenate([table, table ^ value])
    return table
