"""The plot is a file that stands alone, with a line for each run."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from sublayer.inspection.figure import draw_layers
from sublayer.inspection.layer_change import LayerChange, Spread

SVG = "{http://www.w3.org/2000/svg}"


def changes(n_layers: int, value: float, beyond: int = 0) -> list[LayerChange]:
    spread = Spread(value, (0.9 * value, value, 1.1 * value))
    return [
        LayerChange(layer, spread, spread, spread, spread, spread, is_beyond=layer > n_layers)
        for layer in range(1, n_layers + beyond + 1)
    ]


@pytest.mark.parametrize("n_layers", [1, 24])
def test_every_run_is_named_as_it_is(n_layers: int) -> None:
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
    assert n_layers == 1 or len(lines) == 6


def test_what_is_run_beyond_a_model_is_a_line_of_its_own_from_its_last_block() -> None:
    root = ElementTree.fromstring(draw_layers({"a": changes(24, 1.0, beyond=17)}))
    counts = [path.get("d", "").count("L") for path in root.iter(f"{SVG}path")]
    # Of 24 places and of 18, in each of two panels.
    assert counts.count(23) == counts.count(17) == 2


def test_equal_numbers_give_equal_bytes_that_ask_for_nothing() -> None:
    drawn = draw_layers({"a": changes(3, 1.0)})
    assert drawn == draw_layers({"a": changes(3, 1.0)})
    assert set(re.findall(r"\w+://[^\"\s]*", drawn)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "var(" not in drawn
