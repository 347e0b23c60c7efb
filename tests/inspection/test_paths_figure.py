"""The plot of paths stands alone, names every token, and lists what is drawn."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import pairwise

from sublayer.inspection.paths_figure import Panel, draw_paths

SVG = "{http://www.w3.org/2000/svg}"
PANEL = Panel(
    title="a run",
    stack="decoder",
    tokens=["$x^2$", "<a&b>", "中", "_"],
    kinds=["attention", "ffn"],
    shares=(0.625, 0.25),
    coordinates=[[[i + j, i * j] for j in range(4)] for i in range(3)],
)


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]


def test_tokens_components_and_what_moves_them_are_named() -> None:
    found = texts(draw_paths([PANEL]))
    assert set(PANEL.tokens) <= set(found)
    assert "decoder, first component: 62% of the variance" in found
    assert "second: 25%" in found
    assert "a run" in found
    assert found[-4:] == [
        "network: each token by itself",
        "attention: by all tokens that it sees",
        "where a token starts",
        "where it ends",
    ]


def test_kinds_that_nowhere_move_a_token_are_not_listed() -> None:
    post = replace(PANEL, kinds=["cross", "norm"], title="")
    found = texts(draw_paths([PANEL, post]))
    assert {"attention to the source", "the norm behind a sub-layer"} <= set(found)
    assert "vectors of positions" not in found
    assert found.count("$x^2$") == 2


def test_a_leg_of_a_kind_is_drawn_for_each_token() -> None:
    root = ElementTree.fromstring(draw_paths([PANEL]))
    paths = [path.get("d", "") for path in root.iter(f"{SVG}path")]
    # In one line a move and a leg for each of four tokens, once for each kind.
    assert len([d for d in paths if d.count("M") == d.count("L") == 4]) == 2


def test_equal_paths_give_equal_bytes_that_ask_for_nothing() -> None:
    drawn = draw_paths([PANEL])
    assert drawn == draw_paths([PANEL])
    assert set(re.findall(r"\w+://[^\"\s]*", drawn)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "var(" not in drawn


def test_tokens_at_one_place_are_labelled_apart() -> None:
    still = replace(PANEL, tokens=["wide"] * 60, coordinates=[[[0.0, 0.0]] * 60] * 3)
    root = ElementTree.fromstring(draw_paths([still]))
    labels = [each for each in root.iter(f"{SVG}text") if each.text == "wide"]
    places = [re.findall(r"[-\d.]+", each.get("transform", "")) for each in labels]
    heights = sorted(float(place[-1]) for place in places)
    assert len(heights) == 60
    assert all(other - one > 6.0 for one, other in pairwise(heights))
