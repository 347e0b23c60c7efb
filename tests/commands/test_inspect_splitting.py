"""``sublayer inspect splitting`` measures known flows, and the layers of runs."""

from pathlib import Path

import pytest

from tests.commands.results import Sublayer
from tests.wrapping import unwrapped


@pytest.mark.slow
def test_splittings_of_known_flows_are_measured_and_drawn(
    sublayer: Sublayer, tmp_path: Path
) -> None:
    plot = tmp_path / "errors.svg"
    found = sublayer("inspect", "splitting", "--out", plot, "--json").answer()
    orders = {}
    for row in found["local_errors"]:
        method = (row["equation"], row["substeps"], row["splitting"])
        orders[method] = row["slopes"][-1]
    assert orders["linear", "exact", "Lie (Transformer)"] == pytest.approx(2, abs=0.1)
    assert orders["linear", "exact", "Strang (Macaron)"] == pytest.approx(3, abs=0.1)
    assert orders["linear", "Euler", "Strang (Macaron)"] == pytest.approx(2, abs=0.1)
    assert orders["linear, of operators that commute", "exact", "Lie (Transformer)"] is None
    assert "Strang (Macaron)" in plot.read_text()


def test_layers_of_a_run_are_measured_and_drawn(
    sublayer: Sublayer, trained: Path, tmp_path: Path
) -> None:
    asked = ("inspect", "splitting", trained, "--tokens", 64)
    plot = tmp_path / "layers.svg"
    found = sublayer(*asked, "--out", plot, "--json").found()
    for layer in found["runs"][0]["layers"]:
        assert layer["strang"] > 0
        assert layer["own"] == pytest.approx(layer["lie"])
    assert plot.is_file()
    assert " way stack layer Lie Strang as trained way " in unwrapped(sublayer(*asked).out)
