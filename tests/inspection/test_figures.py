"""The plots of layers and paths stand alone, name what they draw, and keep labels apart."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import combinations, pairwise

import hypothesis.strategies as st
from hypothesis import given

from sublayer.inspection.figure import draw_layers
from sublayer.inspection.label_places import Box, raise_labels
from sublayer.inspection.layer_change import LayerChange, Spread
from sublayer.inspection.paths_figure import Panel, draw_paths
from tests.breadth import examples

SVG = "{http://www.w3.org/2000/svg}"
PANEL = Panel(
    title="a run",
    stack="decoder",
    tokens=["$x^2$", "<a&b>", "中", "_"],
    kinds=["attention", "ffn"],
    shares=(0.625, 0.25),
    coordinates=[[[i + j, i * j] for j in range(4)] for i in range(3)],
)


def changes(n_layers: int, value: float, beyond: int = 0) -> list[LayerChange]:
    spread = Spread(value, (0.9 * value, value, 1.1 * value))
    return [
        LayerChange(layer, spread, spread, spread, spread, spread, is_beyond=layer > n_layers)
        for layer in range(1, n_layers + beyond + 1)
    ]


def test_every_run_is_named_as_it_is() -> None:
    n_layers = 24
    names = ["_plain", "$x^2$", "<a&b>", "…" + "x" * 67 + "/end"]
    runs = {name: changes(n_layers, 1.5) for name in names[:3]}
    drawn = draw_layers({**runs, "y" + "x" * 99 + "/end": changes(2, 1.0)})
    root = ElementTree.fromstring(drawn)
    texts = ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]
    assert texts[-4:] == names
    assert {"block", "L2 distance", "angle, degrees"} <= set(texts)
    # A line of 24 places in each of two panels.
    lines = [
        path for path in root.iter(f"{SVG}path") if path.get("d", "").count("L") == n_layers - 1
    ]
    assert len(lines) == 6


def test_blocks_beyond_a_model_are_another_line_from_its_last_block() -> None:
    root = ElementTree.fromstring(draw_layers({"a": changes(24, 1.0, beyond=17)}))
    counts = [path.get("d", "").count("L") for path in root.iter(f"{SVG}path")]
    # Of 24 places and of 18, in each of two panels.
    assert counts.count(23) == counts.count(17) == 2


def test_equal_numbers_give_equal_bytes_that_ask_for_nothing() -> None:
    drawn = draw_layers({"a": changes(3, 1.0)}) + draw_paths([PANEL])
    assert drawn == draw_layers({"a": changes(3, 1.0)}) + draw_paths([PANEL])
    assert set(re.findall(r"\w+://[^\"\s]*", drawn)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "var(" not in drawn


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]


def test_tokens_and_components_are_named() -> None:
    found = texts(draw_paths([PANEL]))
    assert set(PANEL.tokens) <= set(found)
    assert "decoder, first component: 62% of the variance" in found
    assert "second: 25%" in found
    assert "a run" in found


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


def test_tokens_at_one_place_are_labelled_apart() -> None:
    still = replace(PANEL, tokens=["wide"] * 60, coordinates=[[[0.0, 0.0]] * 60] * 3)
    root = ElementTree.fromstring(draw_paths([still]))
    labels = [each for each in root.iter(f"{SVG}text") if each.text == "wide"]
    places = [re.findall(r"[-\d.]+", each.get("transform", "")) for each in labels]
    heights = sorted(float(place[-1]) for place in places)
    assert len(heights) == 60
    assert all(other - one > 6.0 for one, other in pairwise(heights))


def test_free_labels_stay_and_covered_ones_stand_above() -> None:
    low, same, right, high = Box(0, 0, 4, 2), Box(1, 1, 5, 3), Box(6, 0, 9, 2), Box(0, 9, 4, 11)
    assert raise_labels([high, same, right, low], gap=0.5) == [0.0, 1.5, 0.0, 0.0]


def test_a_label_is_raised_over_all_that_are_in_its_way() -> None:
    boxes = [Box(0, 0, 2, 2), Box(0, 0, 2, 2), Box(0, 0, 2, 2)]
    assert sorted(raise_labels(boxes, gap=1.0)) == [0.0, 3.0, 6.0]


sizes = st.integers(1, 9)
places = st.tuples(st.integers(0, 30), st.integers(0, 30), sizes, sizes)


@examples(100)
@given(st.lists(places, max_size=12))
def test_no_label_covers_another_or_sinks(drawn: list[tuple[int, int, int, int]]) -> None:
    boxes = [Box(x, y, x + width, y + height) for x, y, width, height in drawn]
    heights = raise_labels(boxes, gap=1.0)
    assert all(height >= 0.0 for height in heights)
    raised = [box.raised(height) for box, height in zip(boxes, heights, strict=True)]
    assert not any(one.covers(other) for one, other in combinations(raised, 2))
