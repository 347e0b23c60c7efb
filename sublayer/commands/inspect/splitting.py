"""``sublayer inspect splitting``: splitting errors of known flows and of trained layers."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sublayer.commands.inspect.plot_file import short_names, write_plot
from sublayer.commands.inspect.sampling import SampleOptions
from sublayer.commands.inspect.splitting_tables import render_splitting
from sublayer.commands.inspect.stack_samples import sample_stacks
from sublayer.commands.shared.base import emit
from sublayer.commands.shared.text_options import TokenProgress, recipe_of
from sublayer.objective.evaluation import context_of
from sublayer.system.stages import stage

if TYPE_CHECKING:
    from sublayer.inspection.splitting_problems import Problem

_SUBSTEPS: tuple[Literal["exact", "midpoint", "Euler"], ...] = ("exact", "midpoint", "Euler")


def inspect_splitting(
    runs: Sequence[Path], options: SampleOptions, out: Path | None, as_json: bool
) -> None:
    """Measure the layers of runs, or without a run known flows; draw where asked, and print."""
    from sublayer.inspection.splitting_figure import draw_errors, draw_layers

    result: dict[str, Any] = {"what": "splitting"}
    if runs:
        result["runs"] = []
        for run in runs:
            with stage(f"inspecting {run}"):
                result["runs"].append(_trained_layers(run, options))
    else:
        with stage("following known flows"):
            result["local_errors"] = _local_errors()
            result["leading_terms"] = _leading_terms()
    if out is not None and runs:
        layers = [run["layers"] for run in result["runs"]]
        by_name = dict(zip(short_names(runs), layers, strict=True))
        write_plot(out, draw_layers(by_name))
    elif out is not None:
        write_plot(out, draw_errors(result["local_errors"]))
    emit({**result, "out": out}, as_json, render_splitting)


def _local_errors() -> list[dict[str, Any]]:
    """Measure the error of a step of each splitting on equations whose flows are known."""
    from sublayer.inspection.splitting import SPLITTINGS, local_errors
    from sublayer.inspection.splitting_problems import linear_problem, nonlinear_problem

    problems = [linear_problem(), nonlinear_problem(), linear_problem(commute=True)]
    rows = []
    for problem in problems:
        # Where operators commute, approximate sub-steps err by nothing but their own error.
        is_commuting = "commute" in problem.name
        for substeps in _SUBSTEPS[:1] if is_commuting else _SUBSTEPS:
            for splitting in SPLITTINGS:
                errors = local_errors(problem, splitting, substeps)
                flat = {**asdict(errors), "slopes": list(errors.slopes)}
                rows.append({"equation": problem.name, **flat})
    return rows


def _leading_terms() -> list[dict[str, Any]]:
    """Compute the leading term of each splitting's error, as worked out and as measured."""
    from sublayer.inspection.splitting import SPLITTINGS
    from sublayer.inspection.splitting_problems import linear_problem

    problem = linear_problem()
    return [_leading_term(problem, splitting) for splitting in SPLITTINGS]


def _leading_term(problem: "Problem", splitting: str) -> dict[str, Any]:
    from sublayer.inspection.splitting import coefficients, leading_term, predicted_term

    named = {}
    for (later, earlier), number in coefficients(splitting).items():
        named[f"{later}' {earlier}"] = number
    return {
        "splitting": splitting,
        "coefficients": named,
        "predicted": predicted_term(problem, splitting).tolist(),
        "measured": leading_term(problem, splitting).tolist(),
    }


def _trained_layers(run: Path, options: SampleOptions) -> dict[str, Any]:
    """Measure how far a trained model's layers are from following their own flows."""
    from sublayer.inspection.layer_flows import check_flows
    from sublayer.inspection.layer_splitting import measure_splitting
    from sublayer.loading import load

    model = load(run, device="cpu" if options.device is None else options.device)
    check_flows(model.config, str(run))
    recipe = recipe_of(run)
    context = context_of(model, recipe)
    samples = sample_stacks(run, model, recipe, options).samples
    errors = measure_splitting(
        model,
        *samples,
        batch_sequences=options.rows(model, context),
        progress=TokenProgress(f"{run}: read"),
    )
    n_tokens = sum(sample.n_tokens for sample in samples)
    layers = [asdict(each) for each in errors]
    return {"run": str(run), "tokens": n_tokens, "layers": layers}
