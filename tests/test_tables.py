import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.tables import table

_CELL = st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=4).map(" ".join)
_ROWS = st.integers(1, 4).flatmap(
    lambda n: st.lists(st.lists(_CELL, min_size=n, max_size=n), min_size=2, max_size=4)
)


def test_columns_are_as_wide_as_their_widest_cell():
    text = table(["arm", "loss"], [("gpt", "1.25"), ("macaron", "10.5")], right=[1])
    assert text.splitlines() == ["arm      loss", "-------  ----", "gpt      1.25", "macaron  10.5"]
    assert table(["arm", "loss"], []).splitlines() == ["arm  loss", "---  ----"]


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            31,
            [
                "arm  bits per byte  FLOPs/token",
                "---  -------------  -----------",
                "gpt            4.2        246 k",
            ],
        ),
        (
            30,
            [
                "arm  bits per  FLOPs/token",
                "         byte",
                "---  --------  -----------",
                "gpt       4.2        246 k",
            ],
        ),
        (
            25,
            [
                "arm  bits per  FLOPs/",
                "         byte   token",
                "---  --------  ------",
                "gpt       4.2   246 k",
            ],
        ),
    ],
)
def test_headings_of_what_is_too_wide_are_broken_no_more_than_helps(width: int, lines: list[str]):
    headings, rows = ["arm", "bits per byte", "FLOPs/token"], [("gpt", "4.2", "246 k")]
    assert table(headings, rows, right=[1, 2], width=width).splitlines() == lines


def test_cells_are_broken_where_headings_do_not_help():
    rows = [("gpt", "1.0 to 2.0"), ("macaron", "decided")]
    assert table(["arm", "interval"], rows, right=[1], width=18).splitlines() == [
        "arm      interval",
        "-------  --------",
        "gpt        1.0 to",
        "              2.0",
        "macaron   decided",
    ]


def test_what_bars_divide_is_broken_behind_them():
    rows = [("BLEU", "nrefs:1|case:lc|eff:no"), ("chrF", "|")]
    assert table(["measure", "signature"], rows, width=28).splitlines()[2:] == [
        "BLEU     nrefs:1|case:lc|",
        "         eff:no",
        "chrF     |",
    ]


def test_columns_that_do_not_fit_beside_one_another_stand_below_with_the_first():
    assert table(["arm", "memory", "disk"], [("gpt", "1", "2")], width=14).splitlines() == [
        "arm  memory",
        "---  ------",
        "gpt  1",
        "",
        "arm  disk",
        "---  ----",
        "gpt  2",
    ]


@given(_ROWS, st.integers(13, 60))
def test_a_table_fits_and_loses_no_word(rows: list[list[str]], width: int):
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
