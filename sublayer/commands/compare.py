"""``sublayer compare``: which arm is better at an equal budget, and how sure that is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sublayer.commands.base import JsonOption, SettingsArgument, emit, table
from sublayer.config.limits import MOST_SEEDS
from sublayer.config.texts import resolved

if TYPE_CHECKING:
    from sublayer.study.results import ArmResult, Results
    from sublayer.study.statistics import Difference

EXAMPLE = "sublayer compare gpt model.n_layers=2 train.steps=200 --vary model.ffn=gelu,swiglu --seeds 3"


def command(
    source: Annotated[
        str, typer.Argument(metavar="RECIPE|STUDY", help="A recipe to vary, or a study, by name or .toml file.")
    ],
    settings: SettingsArgument = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary", metavar="FIELD=A,B", help="Compare these values; the first is the baseline. Repeatable."
        ),
    ] = None,
    match: Annotated[
        Literal["parameters", "flops", "time", "none"] | None,
        typer.Option("--match", help="What every arm has as much of as the baseline. Default: parameters."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds", metavar="N", min=1, max=MOST_SEEDS, help="Train each arm with the seeds 0 to N - 1. Default: 5."
        ),
    ] = None,
    tune: Annotated[
        list[str] | None,
        typer.Option(
            "--tune", metavar="FIELD=A,B", help="Try these values in every arm, chosen on validation. Repeatable."
        ),
    ] = None,
    scale: Annotated[
        Literal["paper", "cpu"] | None,
        typer.Option("--scale", help="The size of a study. Default: paper, if it has it."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The study's folder. Default: runs/NAME, then runs/NAME-2, ...")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the study in the folder, as happens without it too.")
    ] = False,
    device: Annotated[
        str | None, typer.Option("--device", help="cpu, cuda, cuda:1 ... Default: the GPU where there is one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train every arm at an equal budget with the same seeds, and say which is better, with intervals.

    The same command again goes on where it stopped, or shows what there is; with more --seeds it trains those that are
    missing.
    """
    from sublayer.study.runner import Options, run_study

    options = Options(tuple(vary or ()), match, seeds, tuple(tune or ()), scale, out, device)
    show(*run_study(source, settings or [], options), as_json)


def show(results: "Results", report: Path, as_json: bool) -> None:
    """Print a study's results."""
    from sublayer.study.results import results_to_json

    emit(results_to_json(results, report), as_json, lambda _: render(results, report))


def render(results: "Results", report: Path) -> str:
    """Say the verdicts and what they do not show, then lay out quality beside cost, then name the report."""
    from sublayer.study.shown import shown
    from sublayer.study.wording import conditions, statements

    results = shown(results)
    said = [f"  {statement.verdict:<11}  {statement}" for statement in statements(results)]
    failures = [f"  failed       {failure.arm}, seed {failure.seed}: {failure.message}" for failure in results.failures]
    notes = [f"note: {note}" for note in results.notes]
    lines = [f"{conditions(results)}:", "", *said, *failures, ""]
    lines += [*notes, ""] if notes else []
    lines += [_differences(results), "", _costs(results)]
    if results.further:
        lines += ["", _further(results)]
    return "\n".join([*lines, "", f"report: {resolved(report)}"])


def _differences(results: "Results") -> str:
    from sublayer.study import wording

    decimals = wording.n_decimals(results)

    def row(difference: "Difference") -> list[str]:
        detectable = difference.detectable
        return [
            wording.comparison(results, difference),
            wording.format_signed(difference.mean, decimals),
            wording.format_interval(difference.low, difference.high, decimals),
            wording.format_p(difference.p),
            difference.verdict,
            wording.more_seeds(difference),
            wording.DASH if detectable is None else f"{detectable:.{decimals}f}",
        ]

    numbers = ["difference", "95 % interval", "Holm's p", "verdict", "more seeds", "detectable"]
    rows = table(
        [f"against {results.baseline}", *numbers], [row(each) for each in results.differences], right=[1, 2, 3, 5, 6]
    )
    return f"{rows}\ndetectable: the true difference that these seeds would decide four times in five"


def _further(results: "Results") -> str:
    from sublayer.study import wording

    headings = ["arm", *(text for each in results.further for text in (each.metric.label, "difference"))]
    rows = [
        [
            arm.name,
            *(
                text
                for each in results.further
                for text in (wording.further_value(arm, each), wording.further_difference(arm, each))
            ),
        ]
        for arm in results.arms
    ]
    return table(headings, rows, right=range(1, len(headings)))


def _costs(results: "Results") -> str:
    from sublayer.study import wording

    decimals = wording.n_decimals(results)

    def row(arm: "ArmResult") -> list[str]:
        return [
            arm.name,
            wording.DASH if arm.mean is None else f"{arm.mean:.{decimals}f}",
            f"{arm.parameters['total']:,}",
            wording.format_residual(arm) + (" !" if arm.is_mismatched else ""),
            wording.format_quantity(arm.costs.flops_per_token),
            f"{arm.costs.steps:,}",
            wording.format_quantity(arm.costs.tokens_per_s),
            wording.format_quantity(arm.costs.peak_memory_bytes, "B"),
            wording.format_duration(arm.costs.seconds),
        ]

    headings = [
        "arm",
        results.metric.label,
        "parameters",
        "residual",
        "FLOPs/token",
        "steps",
        "tokens/s",
        "memory",
        "time",
    ]
    rows = table(headings, [row(arm) for arm in results.arms], right=range(1, len(headings)))
    is_marked = any(arm.is_mismatched for arm in results.arms)
    return f"{rows}\n! differs from the baseline by more than 0.5 %" if is_marked else rows
