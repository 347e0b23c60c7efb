"""The plots of layers and paths stand alone, name what they draw, and keep labels apart."""

import xml.etree.ElementTree as ElementTree
from itertools import combinations

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
    kinds=["attention", "norm"],
    shares=(0.625, 0.25),
    coordinates=[[[i + j, i * j] for j in range(4)] for i in range(3)],
)


def changes(n_layers: int, beyond: int = 0) -> list[LayerChange]:
    spread = Spread(1.5, (1.0, 1.5, 1.75))
    return [
        LayerChange(layer, *[spread] * 5, is_beyond=layer > n_layers)
        for layer in range(1, n_layers + beyond + 1)
    ]


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]


def lines(svg: str) -> list[str]:
    return [path.get("d", "") for path in ElementTree.fromstring(svg).iter(f"{SVG}path")]


def test_runs_are_named_as_they_are_and_blocks_beyond_are_another_line() -> None:
    names = ["_plain", "$x^2$", "<a&b>", "…" + "x" * 67 + "/end"]
    runs = {name: changes(24, beyond=17) for name in [*names[:3], "y" + "x" * 99 + "/end"]}
    drawn = draw_layers(runs)
    assert texts(drawn)[-4:] == names
    assert {"block", "L2 distance", "angle, degrees"} <= set(texts(drawn))
    # Of 24 places and, from the last of them, of 18, in each of two panels.
    counts = [line.count("L") for line in lines(drawn)]
    assert counts.count(23) == counts.count(17) == 2 * len(runs)


def test_a_leg_of_a_kind_is_drawn_for_each_token_and_named() -> None:
    drawn = draw_paths([PANEL])
    assert {*PANEL.tokens, "a run", "second: 25%"} <= set(texts(drawn))
    assert "decoder, first component: 62% of the variance" in texts(drawn)
    assert {"the norm behind a sub-layer"} <= set(texts(drawn))
    # Kinds that nowhere move a token are not listed.
    assert not {"attention to the source", "vectors of positions"} & set(texts(drawn))
    # In one line a move and a leg for each of four tokens, once for each kind.
    assert len([line for line in lines(drawn) if line.count("M") == line.count("L") == 4]) == 2


def test_free_labels_stay_and_covered_ones_stand_above_all_in_their_way() -> None:
    low, same, right, high = Box(0, 0, 4, 2), Box(1, 1, 5, 3), Box(6, 0, 9, 2), Box(0, 9, 4, 11)
    assert raise_labels([high, same, right, low], gap=0.5) == [0.0, 1.5, 0.0, 0.0]
    assert sorted(raise_labels([low] * 3, gap=1.0)) == [0.0, 3.0, 6.0]


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
