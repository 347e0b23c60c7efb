"""``sublayer inspect splitting``: splitting errors of known flows and of trained layers."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sublayer.commands.inspect.plot_file import short_names, write_plot
from sublayer.commands.inspect.sampling import SampleOptions
from sublayer.commands.inspect.splitting_tables import render_splitting
from sublayer.commands.shared.base import emit
from sublayer.commands.shared.text_options import TokenProgress, own_split, recipe_of
from sublayer.errors import ConfigError, DataError
from sublayer.objective.evaluation import context_of
from sublayer.system.stages import stage

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.inspection.sample import Sample
    from sublayer.inspection.splitting_problems import Problem
    from sublayer.model.encoder_decoder import EncoderDecoder
    from sublayer.model.transformer import Transformer

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
    from sublayer.inspection.layer_splitting import check_flows, measure_splitting
    from sublayer.loading import load

    model = load(run, device="cpu" if options.device is None else options.device)
    check_flows(model, str(run))
    recipe = recipe_of(run)
    context = context_of(model, recipe)
    samples = _samples(run, model, recipe, options)
    errors = measure_splitting(
        model,
        *samples,
        batch_sequences=options.rows(model, context),
        progress=TokenProgress(f"{run}: read"),
    )
    n_tokens = sum(sample.n_tokens for sample in samples)
    layers = [asdict(each) for each in errors]
    return {"run": str(run), "tokens": n_tokens, "layers": layers}


def _samples(
    run: Path, model: "Transformer", recipe: "Recipe | None", options: SampleOptions
) -> "Sequence[Sample]":
    """Sample what each stack of a model reads of the text."""
    from sublayer.inspection.sample import spread_windows
    from sublayer.model.encoder_decoder import EncoderDecoder

    if isinstance(model, EncoderDecoder):
        if model.tokenizer is not None and model.tokenizer.sentinel_ids:
            raise ConfigError(
                f"{run} is an encoder-decoder that fills gaps, which is not inspected: "
                "name a translator, a decoder or an encoder"
            )
        if options.path is None:
            return _pairs(run, model, recipe, options.max_tokens)
        return [_lines(model, options.path, options.max_tokens)]
    text = options.read_text(run, model, recipe)
    context = context_of(model, recipe)
    return [spread_windows(text, context=context, max_tokens=options.max_tokens)]


def _pairs(
    run: Path, model: "EncoderDecoder", recipe: "Recipe | None", tokens: int
) -> "Sequence[Sample]":
    """Sample what a translator reads of its validation split: sources, and targets."""
    from sublayer.inspection.sample import spread_pairs
    from sublayer.objective.translation.batches import scoring_batches

    split = own_split(run, recipe, model, "valid")
    assert recipe is not None, "a split of its own belongs to a run"
    return spread_pairs(scoring_batches(recipe, split), max_tokens=tokens)


def _lines(model: "EncoderDecoder", path: str, tokens: int) -> "Sample":
    """Sample what a translator's encoder reads of the lines of a file."""
    from sublayer.decode.translate import tokenizer_of
    from sublayer.files.lines import decoded, read_lines
    from sublayer.inspection.sample import spread_rows
    from sublayer.objective.evaluation import context_of

    tokenizer = tokenizer_of(model)
    longest = context_of(model, None)
    assert tokenizer.sep_id is not None, "the vocabulary was checked"
    assert tokenizer.pad_id is not None, "the vocabulary was checked"
    lines = []
    for number, line in read_lines(Path(path)):
        lines.append(decoded(path, number, line))
    rows = tokenizer.encode_source(lines)
    kept = []
    for row in rows:
        if 0 < len(row) < longest:
            kept.append(np.append(row, tokenizer.sep_id))
    if not kept:
        raise DataError(
            f"{path} has no line of 1 to {longest - 1:,} tokens, of which a sample could be taken"
        )
    return spread_rows(kept, pad_id=tokenizer.pad_id, max_tokens=tokens)
