"""The shares of a split are exact, and add up."""

from fractions import Fraction

import pytest

from sublayer.config.data import DataConfig
from sublayer.config.text.split import parse_split
from sublayer.errors import ConfigError


def test_shares_are_read_exactly():
    assert parse_split("90/5/5") == (Fraction(9, 10), Fraction(1, 20), Fraction(1, 20))
    assert parse_split("99.8 / 0.1 / 0.1") == (
        Fraction(998, 1000),
        Fraction(1, 1000),
        Fraction(1, 1000),
    )


@pytest.mark.parametrize("split", ["90/10", "90/5/4", "0/50/50", "110/-5/-5", "a/b/c", "90//10"])
def test_other_shares_are_refused(split):
    with pytest.raises(
        ConfigError,
        match=r"must be three shares",
    ):
        DataConfig(split=split)
