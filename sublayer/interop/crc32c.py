"""The checksum of TensorFlow's files: CRC-32C (Castagnoli), and the masked form in which it is stored."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_ALL = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8
# Words of 4 bytes that are folded at once: 256 KiB stay in a processor's cache.
_ROW_WORDS = 1 << 16

Octets = bytes | NDArray[np.uint8]
Words = NDArray[np.uint32]


def masked_crc32c(data: Octets) -> int:
    """Give the CRC-32C of some bytes as TensorFlow and LevelDB store it: rotated, and a constant added."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _ALL


def crc32c(data: Octets) -> int:
    """Give the CRC-32C of some bytes.

    The register is linear in the data, so that words far apart are brought together: a word moved by n words is
    multiplied by x^(32n) modulo the polynomial. Whole rows are folded into one, which is halved until it is a word.
    """
    octets = np.frombuffer(data, np.uint8)
    n_words = len(octets) // 4
    register = _ALL
    if n_words:
        word = _fold(octets[: 4 * n_words].view("<u4"))
        register = int(_move(word, 1)[0])
    for octet in octets[4 * n_words :].tolist():
        register = int(_octet_table()[(register ^ octet) & 0xFF]) ^ (register >> 8)
    return register ^ _ALL


def _fold(words: Words) -> Words:
    """Bring all words, the first one after the register's initial value, into the place of the last."""
    width = min(_ROW_WORDS, 1 << (len(words) - 1).bit_length())
    n_first = (len(words) - 1) % width + 1
    row = np.zeros(width, np.uint32)
    row[width - n_first :] = words[:n_first]
    row[width - n_first] ^= np.uint32(_ALL)
    for following in words[n_first:].reshape(-1, width):
        row = _move(row, width) ^ following
    while len(row) > 1:
        half = len(row) // 2
        row = _move(row[:half], half) ^ row[half:]
    return row


def _move(words: Words, n_words: int) -> Words:
    """Follow every word by ``n_words`` words of zeros, a power of two."""
    low, high = _move_tables(n_words)
    moved: Words = low[words & np.uint32(0xFFFF)] ^ high[words >> np.uint32(16)]
    return moved


@cache
def _move_tables(n_words: int) -> tuple[Words, Words]:
    """Tabulate, for the lower and the upper 16 bits of a word, what ``n_words`` words of zeros make of it."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    if n_words == 1:
        for _ in range(4):
            bits = _octet_table()[bits & np.uint32(0xFF)] ^ (bits >> np.uint32(8))
    else:
        bits = _move(_move(bits, n_words // 2), n_words // 2)
    return _span(bits[:16]), _span(bits[16:])


@cache
def _octet_table() -> Words:
    remainders = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        remainders = (remainders >> np.uint32(1)) ^ np.where(remainders & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    return remainders


def _span(bits: Words) -> Words:
    """Tabulate a linear function by its values at single bits."""
    table = np.zeros(1, np.uint32)
    for value in bits:
        table = np.concatenate([table, table ^ value])
    return table
