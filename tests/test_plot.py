"""Plots take the look of where they stand, and nothing from elsewhere."""

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

from sublayer.plot import INK, N_COLOURS, file_svg, look, page_svg, palette


def draw(figure: Any) -> None:
    axes = figure.add_subplot()
    for place in range(2 * N_COLOURS):
        axes.plot([1, 2], [place, 3], look(place).line, color=look(place).placeholder)
    axes.set_xlabel("place", color=INK)


def test_looks_differ_for_the_first_fifteen_and_begin_with_the_ink():
    looks = [(each.colour, each.line) for each in map(look, range(1 + 2 * N_COLOURS))]
    assert len(set(looks)) == len(looks)
    assert [looks[place] for place in (0, 1, 7, 8)] == [(0, "-"), (1, "-"), (7, "-"), (1, "--")]


def test_a_plot_of_a_page_has_its_colours_and_font_alone():
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
