"""Plots take the look of where they stand, and nothing from elsewhere."""

import re
from typing import Any

from sublayer.plot import INK, N_COLOURS, look, page_svg, palette


def draw(figure: Any) -> None:
    axes = figure.add_subplot()
    for place in range(2 * N_COLOURS):
        axes.plot([1, 2], [place, 3], look(place).line, color=look(place).placeholder)
    axes.set_xlabel("place", color=INK)


def test_looks_differ_for_the_first_fifteen_and_begin_with_the_ink():
    looks = [look(place) for place in range(1 + 2 * N_COLOURS)]
    assert len(set(looks)) == len(looks)
    assert [(each.colour, each.line) for each in (looks[0], looks[1], looks[7], looks[8])] == [
        (0, "-"), (1, "-"), (7, "-"), (1, "--"),
    ]  # fmt: skip


def test_a_plot_of_a_page_has_its_colours_and_font_alone():
    svg = page_svg(draw, (3.0, 2.0), "Places", "places")
    assert set(re.findall(r"var\(--([\w-]+)\)", svg)) <= set(re.findall(r"--([\w-]+):", palette()))
    assert {font.split()[-1] for font in re.findall(r"font(?:-family)?: [^;\"]*", svg)} == {"var(--sans)"}
    assert re.findall(r"#[0-9a-f]{6}\b|//", svg) == []
