"""Plots take the look of where they stand, and nothing from elsewhere."""

import itertools
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest

from sublayer.plot import INK, N_COLOURS, file_svg, look, page_svg, palette

# Machado et al. 2009, severity 1, of linear RGB; and normal vision.
VISIONS = {
    "normal": [1, 0, 0, 0, 1, 0, 0, 0, 1],
    "protan": [
        *(0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216),
        *(-0.003882, -0.048116, 1.051998),
    ],
    "deutan": [
        *(0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413),
        *(-0.011820, 0.042940, 0.968881),
    ],
    "tritan": [
        *(1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602),
        *(0.004733, 0.691367, 0.303900),
    ],
}
# Oklab (Ottosson 2020).
CONES = [
    *(0.4122214708, 0.5363325363, 0.0514459929, 0.2119034982, 0.6806995451, 0.1073969566),
    *(0.0883024619, 0.2817188376, 0.6299787005),
]
LAB = [
    *(0.2104542553, 0.7936177850, -0.0040720468, 1.9779984951, -2.4285922050, 0.4505937099),
    *(0.0259040371, 0.7827717662, -0.8086757660),
]


def draw(figure: Any) -> None:
    axes = figure.add_subplot()
    for place in range(2 * N_COLOURS):
        axes.plot([1, 2], [place, 3], look(place).line, color=look(place).placeholder)
    axes.set_xlabel("place", color=INK)


def colours(scheme: str) -> dict[str, str]:
    light, _, dark = palette().partition("@media")
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light if scheme == "light" else dark))


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
    svg, light = file_svg(draw, (3.0, 2.0), "Places"), colours("light")
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert (root[0].text, root[1].get("fill")) == ("Places", light["paper"])
    used = {"paper", "ink", "muted", "rule", *(f"series-{index}" for index in range(N_COLOURS + 1))}
    assert set(re.findall(r"#[0-9a-f]{6}\b", svg)) == {light[name] for name in used}
    assert "var(" not in svg
    assert svg == file_svg(draw, (3.0, 2.0), "Places")


def linear(colour: str) -> np.ndarray:
    """Return linear RGB of a hexadecimal sRGB colour."""
    rgb = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def seen(colour: str, vision: str) -> np.ndarray:
    """Return a colour as a vision sees it, in Oklab."""
    eye, cones, lab = (np.reshape(each, (3, 3)) for each in (VISIONS[vision], CONES, LAB))
    return lab @ np.cbrt(cones @ np.clip(eye @ linear(colour), 0, 1))


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG defines it."""
    weights = np.array([0.2126, 0.7152, 0.0722])
    dark, light = sorted((float(weights @ linear(one)), float(weights @ linear(other))))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_arms_are_told_apart_from_each_other_and_from_verdicts_by_every_eye(scheme):
    named = colours(scheme)
    series = [named[f"series-{index}"] for index in range(N_COLOURS + 1)]
    assert all(contrast(colour, named["paper"]) >= 3 for colour in series)
    for vision in VISIONS:
        points = [seen(colour, vision) for colour in series]
        verdicts = [seen(named[verdict], vision) for verdict in ("better", "worse")]
        pairs = itertools.combinations(points, 2)
        assert min(np.linalg.norm(one - other) for one, other in pairs) > 0.07
        pairs = itertools.product(points, verdicts)
        assert min(np.linalg.norm(one - other) for one, other in pairs) > 0.08
