"""Texts that people read: tables of any width, numbers of things, errors of one line."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.counts import count
from sublayer.errors import DataError
from sublayer.study.report.arm_names import _FORMS, name_setting
from sublayer.tables import table

_CELL = st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=4).map(" ".join)
_ROWS = st.integers(1, 4).flatmap(
    lambda n: st.lists(st.lists(_CELL, min_size=n, max_size=n), min_size=2, max_size=4)
)
_HEADINGS, _ARM = ["arm", "bits per byte", "FLOPs/token"], [("gpt", "4.2", "246 k")]


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (31, ["arm  bits per byte  FLOPs/token", "gpt            4.2        246 k"]),
        (30, ["arm  bits per  FLOPs/token", "         byte", "gpt       4.2        246 k"]),
        (25, ["arm  bits per  FLOPs/", "         byte   token", "gpt       4.2   246 k"]),
    ],
)
def test_headings_that_are_too_wide_are_broken_no_more_than_helps(width, lines):
    *found, dashes, last = table(_HEADINGS, _ARM, right=[1, 2], width=width).splitlines()
    assert [*found, last] == lines
    assert re.fullmatch(r"---  -+  -+", dashes) and len(dashes) == len(last)


@pytest.mark.parametrize(
    ("headings", "rows", "right", "width", "lines"),
    [
        (
            *(["arm", "loss"], [("gpt", "1.25"), ("macaron", "10.5")], [1], 80),
            ["arm      loss", "-------  ----", "gpt      1.25", "macaron  10.5"],
        ),
        (["arm", "loss"], [], [], 80, ["arm  loss", "---  ----"]),
        (
            *(["arm", "interval"], [("gpt", "1.0 to 2.0"), ("macaron", "decided")], [1], 18),
            [
                *("arm      interval", "-------  --------"),
                *("gpt        1.0 to", "              2.0", "macaron   decided"),
            ],
        ),
        (  # behind the bars that divide it
            *(["measure", "signature"], [("BLEU", "nrefs:1|case:lc|eff:no"), ("chrF", "|")]),
            *([], 28),
            [
                *("measure  signature", "-------  ----------------"),
                *("BLEU     nrefs:1|case:lc|", "         eff:no", "chrF     |"),
            ],
        ),
        (  # below one another, with the first column
            *(["arm", "memory", "disk"], [("gpt", "1", "2")], [], 14),
            [*("arm  memory", "---  ------", "gpt  1", ""), *("arm  disk", "---  ----", "gpt  2")],
        ),
    ],
)
def test_cells_are_as_wide_as_fits_or_broken(headings, rows, right, width, lines):
    assert table(headings, rows, right=right, width=width).splitlines() == lines


@given(_ROWS, st.integers(13, 60))
def test_a_table_fits_and_loses_no_word(rows, width):
    headings, *cells = rows
    whole = table(headings, cells)
    fitted = table(headings, cells, width=width)
    if max(map(len, whole.splitlines())) <= width:
        assert fitted == whole
    # Two words of six letters and the gap are the widest that two columns must be.
    assert max(map(len, fitted.splitlines())) <= max(width, 14)
    words = sorted(word for row in rows[1:] for cell in row[1:] for word in cell.split())
    printed = fitted.replace("-", " ").split()
    assert all(printed.count(word) >= words.count(word) for word in words)


@pytest.mark.parametrize(
    ("number", "unit", "form", "text"),
    [
        (1, "step", ",", "1 step"),
        (2000, "step", ",", "2,000 steps"),
        (2, "process", ",", "2 processes"),
        (1.004, "epoch", ".3g", "1 epoch"),
        (0.5, "epoch", ".3g", "0.5 epochs"),
    ],
)
def test_a_number_of_things(number, unit, form, text):
    assert count(number, unit, form) == text


def test_a_setting_of_one_is_named_in_the_singular():
    # A name is no number.
    numbers = _FORMS.keys() - {"model.positions", "data.tokenizer"}
    named = [name_setting(field, 1) for field in numbers]
    assert [text for text in named if re.search(r"\b1 \w+s\b", text)] == []


@given(st.text())
def test_an_error_is_one_printable_line(text):
    message = str(DataError(f"a file names {text}, which is not there"))
    assert message.isprintable() and message.startswith("a file names")


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\nb", "a b"), ("\x1b[2J", "\\x1b[2J"), ("\ud800", "\\ud800"), ("ä – 日本", "ä – 日本")],
)
def test_characters_that_a_terminal_would_act_on_are_escaped(text, shown):
    assert str(DataError(text)) == shown
