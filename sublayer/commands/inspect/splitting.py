"""``sublayer inspect splitting``: splitting errors of known flows and of trained layers."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublayer.commands.inspect.plot_file import short_names, write_plot
from sublayer.commands.inspect.samples import SampleOptions, sample_stacks
from sublayer.commands.shared.base import JsonObject
from sublayer.counts import count
from sublayer.objective.evaluation import context_of
from sublayer.runs.texts import TokenProgress, recipe_of
from sublayer.system.stages import stage
from sublayer.system.terminal import paragraph, terminal_width
from sublayer.tables import table

if TYPE_CHECKING:
    from sublayer.inspection.splitting import Substeps

_SUBSTEPS: "tuple[Substeps, ...]" = ("exact", "midpoint", "Euler")


def inspect_splitting(
    runs: Sequence[Path], options: SampleOptions, out: Path | None
) -> dict[str, Any]:
    """Measure the layers of runs, or without a run known flows; draw where asked; return JSON."""
    from sublayer.inspection.layer_splitting import draw_layers
    from sublayer.inspection.splitting import draw_errors

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
    return {**result, "out": out}


def _local_errors() -> list[dict[str, Any]]:
    """Measure the error of a step of each splitting on equations whose flows are known."""
    from sublayer.inspection.splitting import (
        SPLITTINGS,
        linear_problem,
        local_errors,
        nonlinear_problem,
    )

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
    from sublayer.inspection.splitting import (
        SPLITTINGS,
        coefficients,
        leading_term,
        linear_problem,
        predicted_term,
    )

    problem = linear_problem()
    terms = []
    for splitting in SPLITTINGS:
        named = {}
        for (later, earlier), number in coefficients(splitting).items():
            named[f"{later}' {earlier}"] = number
        term = {
            "splitting": splitting,
            "coefficients": named,
            "predicted": predicted_term(problem, splitting).tolist(),
            "measured": leading_term(problem, splitting).tolist(),
        }
        terms.append(term)
    return terms


def _trained_layers(run: Path, options: SampleOptions) -> dict[str, Any]:
    """Measure how far a trained model's layers are from following their own flows."""
    from sublayer.inspection.layer_splitting import check_flows, measure_splitting
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
    layers = [asdict(of_layer) for of_layer in errors]
    return {"run": str(run), "tokens": n_tokens, "layers": layers}


_ERRORS = "the error of a single step of size h, and its order in h"
_TERMS = (
    "Euler sub-steps: all err by h^2; "
    "how much of each product of a flow's derivative with a flow is in it (scheme "
    "less exact), and the length of their sum, as worked out and as measured (linear equation)"
)
_LAYERS = "the distance between a step and what its flows lead to, as a fraction of the way"
_LAYER_HEADINGS = ("stack", "layer", "Lie", "Strang", "as trained", "way")


def render_splitting(result: JsonObject) -> str:
    """Format the errors as tables."""
    parts = []
    if "local_errors" in result:
        parts.append(_error_table(result["local_errors"]))
        parts.append(_term_table(result["leading_terms"]))
    for run in result.get("runs", ()):
        parts.append(_layer_table(run))
    if result["out"] is not None:
        parts.append(f"drawn in {result['out']}")
    return "\n\n".join(parts)


def _error_table(errors: Sequence[JsonObject]) -> str:
    steps = errors[0]["steps"]
    largest, smallest = steps[0], steps[-1]
    headings = [
        "equation",
        "sub-steps",
        "splitting",
        f"error, h = {largest:g}",
        f"h = {smallest:.4g}",
        "order",
    ]
    rows = [_error_row(of_splitting) for of_splitting in errors]
    shown = table(headings, rows, right=[3, 4, 5], width=terminal_width())
    return f"{paragraph(_ERRORS)}\n{shown}"


def _error_row(errors: JsonObject) -> list[str]:
    sizes = errors["errors"]
    order = errors["slopes"][-1]
    return [
        errors["equation"],
        errors["substeps"],
        errors["splitting"],
        f"{sizes[0]:.2e}",
        f"{sizes[-1]:.2e}",
        "none" if math.isnan(order) else f"{order:.2f}",
    ]


def _term_table(terms: Sequence[JsonObject]) -> str:
    products = list(terms[0]["coefficients"])
    headings = ["splitting", *products, "worked out", "measured"]
    rows = []
    for term in terms:
        row = [term["splitting"]]
        for product in products:
            coefficient = round(term["coefficients"][product], 9)
            row.append(f"{coefficient:.4g}")
        for vector in (term["predicted"], term["measured"]):
            row.append(f"{math.hypot(*vector):.4f}")
        rows.append(row)
    shown = table(headings, rows, right=range(1, len(headings)), width=terminal_width())
    return f"{paragraph(_TERMS)}\n{shown}"


def _layer_table(run: JsonObject) -> str:
    rows = [_layer_row(layer) for layer in run["layers"]]
    read = f"{run['run']}: {count(run['tokens'], 'token')}"
    layers = table(_LAYER_HEADINGS, rows, right=range(1, len(_LAYER_HEADINGS)))
    return f"{paragraph(f'{read}; {_LAYERS}')}\n{layers}"


def _layer_row(layer: JsonObject) -> list[str]:
    return [
        layer["stack"],
        str(layer["layer"]),
        f"{layer['lie']:.4f}",
        f"{layer['strang']:.4f}",
        f"{layer['own']:.4f}",
        f"{layer['way']:.4g}",
    ]
