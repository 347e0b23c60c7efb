"""An error is one line, whatever the names in it are made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.errors import DataError


@given(st.text())
def test_an_error_is_one_printable_line(text: str) -> None:
    message = str(DataError(f"a file names {text}, which is not there"))
    assert message.isprintable() and message.startswith("a file names")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", "a b"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\ud800", "\\ud800"),
        ("\u202e", "\\u202e"),
        ("ä – 日本", "ä – 日本"),
    ],
)
def test_what_a_terminal_would_act_on_is_escaped(text: str, shown: str) -> None:
    assert str(DataError(text)) == shown
