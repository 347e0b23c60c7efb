"""Draw the pictures of ``verdicts.md``: the four verdicts, two spreads, and looks.

``python docs/verdict_pictures.py``, after a change of how comparisons are judged.
"""

from pathlib import Path
from typing import Any

import numpy as np

from sublayer.plot import file_svg, look
from sublayer.statistics.contrasts import RunScores, arm_less
from sublayer.statistics.covariance import Effects
from sublayer.statistics.judge import ContrastFamily

IMAGES = Path(__file__).parent / "images"
_MARGIN = 0.02


def four_verdicts_svg() -> str:
    """Draw an interval of each verdict over the margin, and of two cases between verdicts."""
    cases = [
        ("better", -0.075, -0.035),
        ("better, and it may matter little", -0.05, -0.008),
        ("no difference that matters", -0.012, 0.015),
        ("not 0, and still does not matter", 0.004, 0.017),
        ("cannot tell", -0.035, 0.03),
        ("worse", 0.025, 0.07),
    ]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.axvspan(-_MARGIN, _MARGIN, color=look(0).placeholder, alpha=0.15, linewidth=0)
        axes.axvline(0.0, color=look(0).placeholder, linewidth=1.0)
        for place, (_, low, high) in enumerate(cases):
            colour = look(1).placeholder
            axes.plot([low, high], [place, place], color=colour, linewidth=2.4)
            axes.plot([(low + high) / 2], [place], "o", color=colour)
        axes.set_yticks(range(len(cases)), [name for name, _, _ in cases])
        axes.invert_yaxis()
        axes.set_xlim(-0.09, 0.09)
        axes.set_xlabel("difference in loss: better to the left, shaded the margin")

    title = "Intervals of differences, and the verdict on each"
    return file_svg(draw, (7.2, 2.9), title)


def two_spreads_svg() -> str:
    """Draw how far an interval reaches with more seeds, and with more test items."""
    rng = np.random.default_rng(8)
    n_items = 400

    def half(n_seeds: int, items: int) -> float:
        widths = []
        for _ in range(60):
            values: dict[str, dict[int, float]] = {}
            effects: dict[str, dict[int, Effects]] = {}
            for arm in ("a", "b"):
                taste = rng.normal(0, 0.5, items)
                values[arm], effects[arm] = {}, {}
                for seed in range(n_seeds):
                    own = taste + rng.normal(0, 0.03) + rng.normal(0, 0.3, items)
                    values[arm][seed] = float(own.mean())
                    effects[arm][seed] = (own - own.mean()) / items
            scores = RunScores.of(values, effects=effects)
            family = ContrastFamily(
                scores, [arm_less("b", "a")], is_lower_better=True, n_seeds=n_seeds
            )
            (difference,) = family.judge().differences
            assert difference.low is not None and difference.high is not None
            widths.append((difference.high - difference.low) / 2)
        return float(np.mean(widths))

    seeds = [3, 4, 5, 8, 12, 20, 40]
    curves = {
        "400 test items": [half(n, n_items) for n in seeds],
        "1,600 test items": [half(n, 4 * n_items) for n in seeds],
        "6,400 test items": [half(n, 16 * n_items) for n in seeds],
    }

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for index, (name, values) in enumerate(curves.items(), start=1):
            style = look(index)
            axes.plot(seeds, values, "o-", color=style.placeholder, label=name, linewidth=1.6)
        axes.set_xscale("log")
        axes.set_xticks(seeds, [str(n) for n in seeds])
        axes.minorticks_off()
        axes.set_ylim(0.0, None)
        axes.set_xlabel("seeds of each arm")
        axes.set_ylabel("interval reaches ±")
        axes.grid()
        axes.legend(frameon=False)

    title = "How far an interval reaches with more seeds and with more test items"
    return file_svg(draw, (7.2, 3.0), title)


if __name__ == "__main__":
    pictures = {"verdicts.svg": four_verdicts_svg, "spreads.svg": two_spreads_svg}
    for name, picture in pictures.items():
        (IMAGES / name).write_text(picture(), encoding="utf-8")
