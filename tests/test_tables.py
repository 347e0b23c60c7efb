"""Texts that people read: tables of any width, errors of one line; plots in the look of a page."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.errors import DataError
from sublayer.numbers import count
from sublayer.plot import INK, N_COLOURS, file_svg, look, page_svg, palette
from sublayer.tables import table

_CELL = st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=4).map(" ".join)
_ROW = [st.lists(_CELL, min_size=n, max_size=n) for n in range(1, 5)]
_ROWS = st.sampled_from(_ROW).flatmap(lambda row: st.lists(row, min_size=2, max_size=4))
_HEADINGS, _ARM = ["arm", "bits per byte", "FLOPs/token"], [("gpt", "4.2", "246 k")]


@pytest.mark.parametrize("width, lines", [
    (31, ["arm  bits per byte  FLOPs/token", "gpt            4.2        246 k"]),
    (30, ["arm  bits per  FLOPs/token", "         byte", "gpt       4.2        246 k"]),
    (25, ["arm  bits per  FLOPs/", "         byte   token", "gpt       4.2   246 k"]),
])  # fmt: skip
def test_headings_that_are_too_wide_are_broken_no_more_than_helps(width, lines):
    *found, dashes, last = table(_HEADINGS, _ARM, right=[1, 2], width=width).splitlines()
    assert [*found, last] == lines
    assert re.fullmatch(r"---  -+  -+", dashes) and len(dashes) == len(last)


@pytest.mark.parametrize("headings, rows, right, width, lines", [
    (["arm", "loss"], [("gpt", "1.25"), ("macaron", "10.5")], [1], 80,
     ["arm      loss", "-------  ----", "gpt      1.25", "macaron  10.5"]),
    (["arm", "loss"], [], [], 80, ["arm  loss", "---  ----"]),
    (["arm", "interval"], [("gpt", "1.0 to 2.0"), ("macaron", "decided")], [1], 18,
     ["arm      interval", "-------  --------", "gpt        1.0 to", "              2.0",
      "macaron   decided"]),
    (["measure", "signature"], [("BLEU", "nrefs:1|case:lc|eff:no"), ("chrF", "|")], [], 28,
     ["measure  signature", "-------  ----------------", "BLEU     nrefs:1|case:lc|",
      "         eff:no", "chrF     |"]),
    (["arm", "memory", "disk"], [("gpt", "1", "2")], [], 14,
     ["arm  memory", "---  ------", "gpt  1", "", "arm  disk", "---  ----", "gpt  2"]),
])  # fmt: skip
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


def test_a_number_of_things():
    found = [count(1, "step", ","), count(2000, "step", ","), count(1.004, "epoch", ".3g")]
    assert found == ["1 step", "2,000 steps", "1 epoch"] and count(2, "process") == "2 processes"


@given(st.text())
def test_an_error_is_one_printable_line(text):
    message = str(DataError(f"a file names {text}, which is not there"))
    assert message.isprintable() and message.startswith("a file names")
    assert str(DataError("a\nb \x1b[2J \ud800 ä – 日本")) == "a b \\x1b[2J \\ud800 ä – 日本"


def draw(figure):
    axes = figure.add_subplot()
    for place in range(2 * N_COLOURS):
        axes.plot([1, 2], [place, 3], look(place).line, color=look(place).placeholder)
    axes.set_xlabel("place", color=INK)


def test_a_plot_of_a_page_has_its_colours_and_font_alone_and_looks_differ():
    looks = [(each.colour, each.line) for each in map(look, range(1 + 2 * N_COLOURS))]
    assert len(set(looks)) == len(looks) and looks[0] == (0, "-")
    svg = page_svg(draw, (3.0, 2.0), "Places", "places")
    assert set(re.findall(r"var\(--([\w-]+)\)", svg)) <= set(re.findall(r"--([\w-]+):", palette()))
    fonts = re.findall(r"font(?:-family)?: [^;\"]*", svg)
    assert {font.split()[-1] for font in fonts} == {"var(--sans)"}
    assert re.findall(r"#[0-9a-f]{6}\b|//", svg) == []


def test_a_file_has_the_light_colours_on_paper_and_needs_no_page():
    svg = file_svg(draw, (3.0, 2.0), "Places")
    light = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", palette().partition("@media")[0]))
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert (root[0].text, root[1].get("fill")) == ("Places", light["paper"])
    used = {"paper", "ink", "muted", "rule", *(f"series-{index}" for index in range(N_COLOURS + 1))}
    assert set(re.findall(r"#[0-9a-f]{6}\b", svg)) == {light[name] for name in used}
    assert "var(" not in svg
    assert svg == file_svg(draw, (3.0, 2.0), "Places")
