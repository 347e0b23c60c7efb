"""The notation of ``data.split``: the shares of train, validation and test."""

import re
from fractions import Fraction

from sublayer.errors import ConfigError

DEFAULT_SPLIT = "90/5/5"
_N_SHARES = 3
_SHARE = re.compile(r"[0-9]{1,3}(\.[0-9]{0,12})?|\.[0-9]{1,12}")
"""Plain decimals: the power of ten of a share such as 1e999999999 would be written out."""


def parse_split(split: str) -> tuple[Fraction, Fraction, Fraction]:
    """Read ``train/valid/test`` in percent as exact shares that sum to 1.

    The shares of validation and test may be 0: nothing is held out for them. Raises ConfigError
    where they do not sum to 1, where training has none, and where a share is no plain decimal.
    """
    shares = _parse_shares(split)
    is_whole = len(shares) == _N_SHARES and sum(shares) == 1
    if not is_whole or shares[0] == 0:
        raise ConfigError(
            f"data.split = {split[:80]!r} must be three shares that add up to 100, the first above "
            f"0, such as {DEFAULT_SPLIT}; 100/0/0 holds nothing out"
        )
    train, valid, test = shares
    return train, valid, test


def _parse_shares(split: str) -> list[Fraction]:
    """Return the shares that a text lists; none where one of them is no plain decimal."""
    parts = [part.strip() for part in split.split("/")]
    if not all(_SHARE.fullmatch(part) for part in parts):
        return []
    return [Fraction(part) / 100 for part in parts]
