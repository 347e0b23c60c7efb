"""What the report's plots share, and the plot of every seed; equal results give equal bytes."""

import math
from typing import Any

from sublayer.plot import INK, RULE, Look, look, page_svg
from sublayer.reporting.words import is_scored_on_text
from sublayer.study.results import Results

SIZE = (4.8, 3.1)  # inches of 72 units: legible both on a phone and at twice its width


def looks(results: Results) -> dict[str, Look]:
    """Assign every arm a style: the baseline is black, others seven colours, solid, then dashed."""
    names = [results.baseline]
    for arm in results.arms:
        if arm.name != results.baseline:
            names.append(arm.name)
    return {name: look(index) for index, name in enumerate(names)}


def draw_seeds(results: Results) -> str | None:
    """Plot every seed of every arm, equal seeds joined, means as bars; None without results.

    Returns SVG for a page that has the palette, a row for each arm.
    """
    arms = [arm for arm in results.arms if arm.values]
    if not arms:
        return None
    styles = looks(results)
    last_seed = max(max(arm.seeds) for arm in arms)
    height = 0.75 + 0.36 * len(arms)

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for seed in range(last_seed + 1):
            values = []
            rows = []
            for row, arm in enumerate(arms):
                if seed in arm.seeds:
                    index = arm.seeds.index(seed)
                    values.append(arm.values[index])
                    rows.append(row)
            if values:
                axes.plot(values, rows, color=RULE, linewidth=0.8, zorder=1)
        for row, arm in enumerate(arms):
            colour = styles[arm.name].placeholder
            same_row = [row] * len(arm.values)
            axes.plot(
                arm.values,
                same_row,
                "o",
                color=colour,
                markersize=4.5,
                alpha=0.75,
                zorder=3,
            )
            height_of_bar = [row - 0.3, row + 0.3]
            axes.plot([arm.mean, arm.mean], height_of_bar, color=colour, linewidth=2, zorder=2)
        names = [shortened(arm.name) for arm in arms]
        axes.set_yticks(range(len(arms)), names, parse_math=False)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_ylim(len(arms) - 0.5, -0.5)
        axes.spines["left"].set_visible(False)
        split = f"{results.split} split, " if is_scored_on_text(results) else ""
        axes.set_xlabel(f"{split}{results.metric.label}")

    title = f"{results.metric.label} of every seed"
    return page_svg(draw, (SIZE[0], height), title, "seeds")


def unit_of(largest: float) -> tuple[float, str]:
    """Return what an axis is divided by, a power of 1000, and what its label says of that."""
    power = 0
    if largest >= 20_000:
        n_thousands = int(math.log10(largest) // 3)
        power = 3 * n_thousands
    words = {0: "", 3: ", thousands", 6: ", millions"}
    raised = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    superscript = str(power).translate(raised)
    return 10.0**power, words.get(power, f", 10{superscript}")


def shortened(name: str, longest: int = 22) -> str:
    """Cut a name for a plot."""
    if len(name) <= longest:
        return name
    return f"{name[: longest - 1]}…"
