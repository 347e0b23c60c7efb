"""What ``sublayer inspect splitting`` prints and draws: errors of splittings, of known flows and of trained layers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sublayer.commands.base import table
from sublayer.errors import DataError

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.inspect.sample import Sample
    from sublayer.model.encoder_decoder import EncoderDecoder


def known_flows() -> dict[str, Any]:
    """Measure the splittings on equations whose flows are known."""
    from sublayer.inspect.splitting import (
        SPLITTINGS,
        coefficients,
        leading_term,
        linear_problem,
        local_errors,
        nonlinear_problem,
        predicted_term,
    )

    problems = [linear_problem(), nonlinear_problem(), linear_problem(commute=True)]
    rows = [
        {"equation": problem.name, **_flat(local_errors(problem, splitting, substeps))}
        for problem in problems
        for substeps in ("exact", "midpoint", "Euler")
        for splitting in SPLITTINGS
        if substeps == "exact" or "commute" not in problem.name
    ]
    problem = linear_problem()
    terms = [
        {
            "splitting": name,
            "coefficients": {f"{later}' {earlier}": number for (later, earlier), number in coefficients(name).items()},
            "predicted": predicted_term(problem, name).tolist(),
            "measured": leading_term(problem, name).tolist(),
        }
        for name in SPLITTINGS
    ]
    return {"what": "splitting", "local_errors": rows, "leading_terms": terms}


def trained_layers(run: Path, path: str | None, tokens: int, batch: int | None, device: str | None) -> dict[str, Any]:
    """Measure how far a trained model's layers are from following their own flows."""
    from sublayer.commands.reading import TokenProgress, batch_sequences, context_of, other_text, own_split, recipe_of
    from sublayer.inspect.layer_splitting import check_flows, measure_splitting
    from sublayer.inspect.sample import spread_windows
    from sublayer.load import load
    from sublayer.model.encoder_decoder import EncoderDecoder

    model = load(run, device="cpu" if device is None else device)
    check_flows(model, str(run))
    recipe = recipe_of(run)
    context = context_of(model, recipe)
    if isinstance(model, EncoderDecoder):
        samples = _pairs(run, model, recipe, tokens) if path is None else [_lines(model, path, tokens)]
    else:
        text = own_split(run, recipe, model, "valid") if path is None else other_text(run, model, path, None, "valid")
        samples = [spread_windows(text, context=context, max_tokens=tokens)]
    shown = TokenProgress(f"{run}: read")
    found = measure_splitting(model, *samples, batch_sequences=batch or batch_sequences(model, context), progress=shown)
    n_tokens = sum(sample.n_tokens for sample in samples)
    return {"run": str(run), "tokens": n_tokens, "layers": [asdict(each) for each in found]}


def _pairs(run: Path, model: "EncoderDecoder", recipe: "Recipe | None", tokens: int) -> "Sequence[Sample]":
    """Sample what a translator reads of its validation split: sources, and targets."""
    from sublayer.commands.reading import own_split
    from sublayer.inspect.sample import spread_pairs
    from sublayer.objective.batching import translation_batches

    split = own_split(run, recipe, model, "valid")
    assert recipe is not None, "a split of its own belongs to a run"
    return spread_pairs(translation_batches(recipe, split), max_tokens=tokens)


def _lines(model: "EncoderDecoder", path: str, tokens: int) -> "Sample":
    """Sample what a translator's encoder reads of the lines of a file."""
    from sublayer.commands.reading import context_of
    from sublayer.data.lines import decoded, read_lines
    from sublayer.decode.translate import tokenizer_of
    from sublayer.inspect.sample import spread_rows

    tokenizer, longest = tokenizer_of(model), context_of(model, None)
    assert tokenizer.sep_id is not None and tokenizer.pad_id is not None, "the vocabulary was checked"
    rows = tokenizer.encode_source([decoded(path, number, line) for number, line in read_lines(Path(path))])
    kept = [np.append(row, tokenizer.sep_id) for row in rows if 0 < len(row) < longest]
    if not kept:
        raise DataError(f"{path} has no line of 1 to {longest - 1:,} tokens, of which a sample could be taken")
    return spread_rows(kept, pad_id=tokenizer.pad_id, max_tokens=tokens)


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


def _terms(terms: Sequence[Mapping[str, Any]]) -> str:
    products = list(terms[0]["coefficients"])
    rows = [
        (
            term["splitting"],
            *(f"{round(term['coefficients'][product], 9):.4g}" for product in products),
            f"{math.hypot(*term['predicted']):.4f}",
            f"{math.hypot(*term['measured']):.4f}",
        )
        for term in terms
    ]
    head = (
        "Euler sub-steps: all err by h^2; how much of each product of a flow's derivative with a flow is in it (scheme "
        "less exact), and the length of their sum, as worked out and as measured (linear equation)"
    )
    heads = ["splitting", *products, "worked out", "measured"]
    return f"{head}\n{table(heads, rows, right=range(1, len(heads)))}"


def _layers(run: Mapping[str, Any]) -> str:
    headings = ["stack", "layer", "Lie", "Strang", "as trained", "way"]
    rows = [
        (
            each["stack"],
            str(each["layer"]),
            *(f"{each[key]:.4f}" for key in ("lie", "strang", "own")),
            f"{each['way']:.4g}",
        )
        for each in run["layers"]
    ]
    read = f"{run['run']}: {run['tokens']:,} tokens"
    what = "the distance between a step and what its flows lead to, as a share of the way"
    return f"{read}; {what}\n{table(headings, rows, right=range(1, len(headings)))}"
