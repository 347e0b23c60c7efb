"""Bits per byte of a text by tables of single bytes, pairs and triples.

    python benchmarks/byte_tables.py char-small data.path=enwik8_first_4MB

A table is counted on the training split and scored on the whole test split. Each row has one count
more, spread as the shorter table has it, and that of no context as all bytes alike.
"""

import argparse
import json

import numpy as np
from numpy.typing import NDArray

from sublayer.config.load import load_recipe
from sublayer.data.prepare import prepare
from sublayer.errors import SublayerError

Bytes = NDArray[np.int64]
_LONGEST = 3


def bits_per_byte(train: Bytes, test: Bytes, n: int) -> float:
    """Return what a table of ``n`` bytes takes of ``test``, but for the first ``n - 1`` of it."""
    chance = _chances(train, test, n)[n - 1 :]
    return float(-np.log2(chance).mean())


def _chances(train: Bytes, test: Bytes, n: int) -> NDArray[np.float64]:
    """Return the chance of each byte of ``test`` behind the ``n - 1`` before it."""
    if n == 0:
        return np.full(len(test), 1 / 256)
    whole = np.bincount(_codes(train, n), minlength=256**n)
    rows = whole.reshape(-1, 256).sum(1)
    codes = _codes(test, n)
    shorter = _chances(train, test, n - 1)
    chances = shorter.copy()
    chances[n - 1 :] = (whole[codes] + shorter[n - 1 :]) / (rows[codes // 256] + 1.0)
    return chances


def _codes(text: Bytes, n: int) -> Bytes:
    """Number each stretch of ``n`` bytes."""
    codes = np.zeros(len(text) - n + 1, dtype=np.int64)
    for k in range(n):
        codes = codes * 256 + text[k : len(text) - n + 1 + k]
    return codes


def main() -> None:
    """Print the bits per byte of each table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("recipe")
    parser.add_argument("settings", nargs="*")
    options = parser.parse_args()
    data = prepare(load_recipe(options.recipe, options.settings).recipe.data)
    assert data.test is not None, "the recipe holds a test split out"
    train, test = (split.ids.astype(np.int64) for split in (data.train, data.test))
    for n in range(1, _LONGEST + 1):
        print(json.dumps({"bytes": n, "bits_per_byte": bits_per_byte(train, test, n)}))


if __name__ == "__main__":
    try:
        main()
    except SublayerError as error:
        raise SystemExit(f"error: {error}") from None
