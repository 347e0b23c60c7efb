"""What ``sublayer inspect splitting`` prints and draws: errors of splittings, of known flows and of trained layers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sublayer.commands.base import table


def known_flows() -> dict[str, Any]:
    """Measure the splittings on equations whose flows are known."""
    from sublayer.inspect.splitting import SPLITTINGS, leading_term, linear_problem, local_errors, nonlinear_problem

    problems = [linear_problem(), nonlinear_problem(), linear_problem(commute=True)]
    rows = [
        {"equation": problem.name, **_flat(local_errors(problem, splitting, substeps))}
        for problem in problems
        for substeps in ("exact", "midpoint", "Euler")
        for splitting in SPLITTINGS
        if substeps == "exact" or "commute" not in problem.name
    ]
    problem = linear_problem()
    terms = {name: leading_term(problem, name).tolist() for name in ("Lie (Transformer)", "Strang (Macaron)")}
    return {"what": "splitting", "local_errors": rows, "leading_terms": terms}


def trained_layers(run: Path, path: str | None, tokens: int, batch: int | None, device: str | None) -> dict[str, Any]:
    """Measure how far a trained model's layers are from following their own flows."""
    from sublayer.commands.reading import TokenProgress, batch_sequences, context_of, other_text, own_split, recipe_of
    from sublayer.inspect.layer_splitting import check_flows, measure_splitting
    from sublayer.inspect.sample import Sample, spread_windows
    from sublayer.load import load
    from sublayer.model.encoder_decoder import EncoderDecoder
    from sublayer.objective.batching import translation_batches

    model = load(run, device="cpu" if device is None else device)
    check_flows(model, str(run))
    recipe = recipe_of(run)
    context = context_of(model, recipe)
    text = own_split(run, recipe, model, "valid") if path is None else other_text(run, model, path, None, "valid")
    if isinstance(model, EncoderDecoder):
        assert recipe is not None, "a split of its own belongs to a run"
        batches = translation_batches(recipe, text)
        pairs = batches.batch(0)
        sample = Sample(pairs.source, pairs.source_mask)
    else:
        sample = spread_windows(text, context=context, max_tokens=tokens)
    shown = TokenProgress(f"{run}: read")
    found = measure_splitting(model, sample, batch_sequences=batch or batch_sequences(model, context), progress=shown)
    return {"run": str(run), "tokens": sample.n_tokens, "layers": [asdict(each) for each in found]}


def render_splitting(result: Mapping[str, Any]) -> str:
    """Lay the errors out."""
    parts = []
    if "local_errors" in result:
        parts += [_known(result["local_errors"]), _terms(result["leading_terms"])]
    parts += [_layers(run) for run in result.get("runs", ())]
    if result.get("out") is not None:
        parts.append(f"drawn in {result['out']}")
    return "\n\n".join(parts)


def _flat(errors: Any) -> dict[str, Any]:
    return {**asdict(errors), "slopes": list(errors.slopes)}


def _known(rows: Sequence[Mapping[str, Any]]) -> str:
    steps = rows[0]["steps"]
    headings = ["equation", "sub-steps", "splitting", f"error, h = {steps[0]:g}", f"h = {steps[-1]:.4g}", "order"]
    cells = [
        (
            row["equation"],
            row["substeps"],
            row["splitting"],
            f"{row['errors'][0]:.2e}",
            f"{row['errors'][-1]:.2e}",
            "none" if math.isnan(row["slopes"][-1]) else f"{row['slopes'][-1]:.2f}",
        )
        for row in rows
    ]
    return "the error of a single step of size h, and its order in h\n" + table(headings, cells, right=[3, 4, 5])


def _terms(terms: Mapping[str, Sequence[float]]) -> str:
    norms = {name: math.hypot(*term) for name, term in terms.items()}
    rows = [(name, f"{norm:.4f}") for name, norm in norms.items()]
    head = "Euler sub-steps: both err by h^2, with a coefficient of length (linear equation, scheme less exact)"
    return f"{head}\n{table(['splitting', 'length'], rows, right=[1])}"


def _layers(run: Mapping[str, Any]) -> str:
    headings = ["layer", "Lie", "Strang", "as trained", "way"]
    rows = [
        (str(each["layer"]), f"{each['lie']:.4f}", f"{each['strang']:.4f}", f"{each['own']:.4f}", f"{each['way']:.4g}")
        for each in run["layers"]
    ]
    read = f"{run['run']}: {run['tokens']:,} tokens"
    what = "the distance between a step and what its flows lead to, as a share of the way"
    return f"{read}; {what}\n{table(headings, rows, right=[0, 1, 2, 3, 4])}"
