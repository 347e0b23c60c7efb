"""Zero-shot probes along training, as GPT-1's paper draws them: 0 is chance, 1 the reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from sublayer.config.probes import PREFIX
from sublayer.plot import MUTED, look, page_svg

_INCHES = (6.4, 3.6)
_STYLES = ("-", "--", ":", "-.")
"""Of runs that stand in one figure; a probe has one colour in all of them."""


@dataclass(frozen=True)
class ProbedRun:
    """A run whose evaluations asked probes."""

    name: str
    described: Mapping[str, Mapping[str, Any]]
    """By probe, what the record says of it."""
    curves: Mapping[str, Sequence[tuple[int, float]]]
    """By probe its score after so many steps."""


def probed_run(
    name: str, record: Mapping[str, Any] | None, lines: Sequence[Mapping[str, Any]]
) -> ProbedRun | None:
    """Read the probes of a run off its record and its metrics; None of a run without any."""
    described = (record or {}).get("probes") or {}
    curves = {}
    for probe in described:
        key = f"{PREFIX}/{probe}"
        points = [(line["step"], float(line[key])) for line in lines if key in line]
        if points:
            curves[probe] = points
    return ProbedRun(name, described, curves) if curves else None


def draw_probes(runs: Sequence[ProbedRun], title: str = "zero-shot probes") -> str | None:
    """Draw the probes that have a reference, from chance to that; None where there are none.

    The band around 0 is chance with two standard errors of the probe that has the fewest examples.
    Returns SVG for a page that has the palette.
    """
    if not _drawn(runs):
        return None
    return page_svg(lambda figure: put_probes(figure, runs), _INCHES, escape(title), "probes")


def put_probes(figure: Any, runs: Sequence[ProbedRun]) -> None:
    """Put the curves of probes on a figure of matplotlib."""
    probes = _drawn(runs)
    axes = figure.add_subplot()
    widest = 0.0
    for index, probe in enumerate(probes):
        colour = look(index + 1).placeholder
        for style, run in zip(_STYLES, runs, strict=False):
            if probe not in run.curves:
                continue
            described = run.described[probe]
            span = described["reference"] - described["chance"]
            widest = max(widest, 2 * described["chance_error"] / span)
            steps, values = zip(*run.curves[probe], strict=True)
            shown = [(value - described["chance"]) / span for value in values]
            named = described["title"] + (f", {run.name}" if len(runs) > 1 else "")
            axes.plot(steps, shown, style, color=colour, linewidth=1.4, label=named)
    axes.axhspan(-widest, widest, color=MUTED, alpha=0.12, linewidth=0, label="chance, ± 2 errors")
    axes.axhline(0.0, color=MUTED, linewidth=0.8)
    axes.set_xlim(left=0)
    axes.set_xlabel("optimizer steps")
    axes.set_ylabel("from chance (0) to the reference (1)")
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _drawn(runs: Sequence[ProbedRun]) -> list[str]:
    probes: dict[str, None] = {}
    for run in runs:
        for probe in run.curves:
            if run.described[probe]["reference"] is not None:
                probes.setdefault(probe)
    return list(probes)
