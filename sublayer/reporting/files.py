"""Files of a comparison: report and ``results.json``, after its runs or from its folder."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sublayer.config.layers import RUN_RECIPE
from sublayer.errors import ConfigError, TrainingError
from sublayer.files.storage import resolved, write_file, write_json
from sublayer.numbers import NO_BREAK
from sublayer.reporting.html import render_report, render_run, write_report
from sublayer.reporting.tables import card_json, check_table_files, write_tables
from sublayer.reporting.words import describe_largest, headline
from sublayer.statistics.contrasts import CONFIDENCE
from sublayer.study.collect import results_of_folder
from sublayer.study.comparisons import (
    arm_budgets,
    differing_fields,
    final_losses,
    same_quality,
    secondary_analyses,
    tuned_best,
)
from sublayer.study.definition import OptionedStudy, Options, Overrides
from sublayer.study.finished import RUNS, compare_runs, read_paths
from sublayer.study.inspection import layers_to_json
from sublayer.study.plan_file import PLAN
from sublayer.study.results import REPORT, RESULTS, ArmResult, Results
from sublayer.study.runner import run_study
from sublayer.system.terminal import stage

_HEADING = '<h1 id="verdict">'
"""The mark of a comparison's report, whichever command wrote it."""


def report_study(
    sources: Sequence[str],
    overrides: Overrides,
    options: Options,
    asked: OptionedStudy | None = None,
) -> tuple[Results, Path]:
    """Run a study, or its missing runs, and write its report; return results and report.

    ``asked`` is the study of these arguments, if it is loaded already. Raises as ``run_study``
    does, and TrainingError after the report, if no arm is left with two seeds to compare, or with
    the single planned one.
    """
    results, folder = run_study(sources, overrides, options, asked)
    report = write_results(results, folder)
    differences = results.differences
    if results.has_verdicts:
        # Ranks are informative unless all runs failed.
        is_compared = any(arm.values for arm in results.arms) and any(
            difference.low is not None or difference.by_ranks for difference in differences
        )
        needed = "two finished seeds, or the baseline lacks them"
    else:
        is_compared = any(difference.mean is not None for difference in differences)
        needed = "a finished seed, or the baseline lacks one"
    if not is_compared:
        raise TrainingError(f"no arm has {needed}: see {report}")
    return results, report


def write_results(results: Results, folder: Path) -> Path:
    """Write the report and ``results.json`` into a folder; return the report's path."""
    report = folder / REPORT
    with stage("writing the report"):
        write_report(results, report)
        write_json(folder / RESULTS, results_to_json(results, report))
    return report


def report_again(folder: Path, out: Path | None = None, tables: Sequence[Path] = ()) -> Path:
    """Write the report of a folder, and ``tables``; return the report's absolute path.

    A comparison's report replaces the report in its folder. Raises ConfigError if the folder holds
    neither a run nor a comparison, if the file is not this folder's report, if a table's file
    exists, and for a table of a run; CheckpointError if its content is damaged.
    """
    target = out or folder / REPORT
    # Two hyphens would end the comment early.
    escaped = str(resolved(folder)).replace("--", "-&#45;").replace(">", "&gt;")
    mark = f"<!-- sublayer report of {escaped} -->"
    is_own = out is None and (folder / PLAN).is_file()
    _check_free(target, mark, is_own=is_own or (out is None and (folder / RUNS).is_file()))
    check_table_files(tables)
    results = None
    if (folder / PLAN).is_file():
        results = results_of_folder(folder)
    elif (folder / RUNS).is_file():
        # Scores are kept in the folder: nothing is recomputed.
        results, _ = compare_runs(read_paths(folder), folder)
        write_results(results, folder)
    if results is not None:
        page = render_report(results)
        for path in tables:
            write_tables(results, path)
    elif tables:
        raise ConfigError(f"--table requires a comparison, and {folder} holds none: leave it out")
    elif (folder / RUN_RECIPE).is_file():
        page = render_run(folder)
    else:
        raise ConfigError(f"{folder} holds neither a run nor a comparison: see sublayer runs")
    write_file(target, f"{page.rstrip()}\n{mark}\n")
    return resolved(target)


def _check_free(target: Path, mark: str, *, is_own: bool) -> None:
    if not target.exists():
        return
    lines = target.read_bytes().decode("utf-8", "replace").splitlines() if target.is_file() else []
    is_report = is_own and any(line.startswith(_HEADING) for line in lines)
    if lines[-1:] != [mark] and not is_report:
        raise ConfigError(f"{target} exists and is not a report of this folder: give another --out")


def results_to_json(results: Results, report: Path) -> dict[str, Any]:
    """Build the object of ``compare --json``; ``report`` becomes an absolute path."""
    hypothesis, sealing = None, results.sealing
    if results.hypothesis_of is not None:
        arm, baseline = results.hypothesis_of
        hypothesis = {"says": results.hypothesis, "arm": arm, "baseline": baseline}
    differences = []
    for difference, analysis in zip(results.differences, secondary_analyses(results), strict=True):
        secondary = asdict(analysis)
        label, _, _ = (secondary.pop(name) for name in ("course_label", "arm", "baseline"))
        if (course := analysis.course) is not None:
            secondary["course"] = {"metric": label, **secondary["course"], "turns": course.turns}
        differences.append({**asdict(difference), "secondary": secondary})
    content = {
        "report": str(resolved(report)),
        "headline": headline(results).replace(NO_BREAK, " "),
        "metric": results.metric.name,
        "is_lower_better": results.metric.is_lower_better,
        "split": results.split,
        "scored_on": results.scored_on or f"the {results.split} split",
        "match": results.match,
        "budgets": describe_largest(results).replace(NO_BREAK, " "),
        "baseline": results.baseline,
        "confidence": CONFIDENCE,
        "arms": [
            {**_arm_to_json(arm, results), "excess": budget.to_json()}
            for arm, budget in zip(results.arms, arm_budgets(results), strict=True)
        ],
        "n_comparisons": results.n_comparisons,
        "differences": differences,
        "further": [
            {
                "metric": further.metric.name,
                "is_lower_better": further.metric.is_lower_better,
                "differences": list(map(asdict, further.differences)),
            }
            for further in results.further
        ],
        "same_quality": [
            {
                "arm": reached.arm,
                "of": reached.whose,
                "metric": reached.metric.name,
                **{cost: asdict(reached.summary(cost)) for cost in ("steps", "flops", "seconds")},
                "parameters": reached.parameters,
                "seeds": list(map(asdict, reached.seeds)),
                "problem": reached.problem,
            }
            for reached in same_quality(results)
        ],
        "failures": list(map(asdict, results.failures)),
        "notes": results.notes,
        "margin": results.margin,
        "margin_reason": results.margin_reason,
        "hypothesis": hypothesis,
        "pairing": None if results.pairing is None else asdict(results.pairing),
        "looks": results.looks,
        "is_sequential": results.is_sequential,
        "name": results.name,
        "title": results.title,
        "planned_seeds": results.n_seeds,
        "reproduction": asdict(results.reproduction),
        "differing": {
            field: {name: asdict(setting) for name, setting in settings.items()}
            for field, settings in differing_fields(results.arms).items()
        },
        "plan": None,
    }
    if sealing is not None and sealing.hash:
        content["plan"] = {
            "sealed": sealing.date,
            "hash": sealing.hash,
            "additions": sealing.additions,
            "alterations": sealing.alterations,
        }
    if results.scorecard is not None:
        content["scorecard"] = card_json(results.scorecard)
    plain: dict[str, Any] = json.loads(json.dumps(content))  # whose tuples are lists
    return plain


def _arm_to_json(arm: ArmResult, results: Results) -> dict[str, Any]:
    training, validation, gap = final_losses(arm, results.metric)
    content = {
        "name": arm.name,
        "parameters": arm.parameters,
        "seeds": arm.seeds,
        "values": arm.values,
        "mean": arm.mean,
        "sd": arm.sd,
        "mismatch": arm.mismatch,
        "published": arm.published,
        "further": {
            name: {"seeds": list(values), "values": list(values.values())}
            for name, values in arm.further.items()
        },
        "sample": None if arm.sample is None else asdict(arm.sample),
        "final_losses": {"training": training, "validation": validation, "gap": gap},
        "matched": arm.matched,
        "tuned": arm.tuned,
        "tunings": [
            {**asdict(tuning), "expected_best": tuned_best(tuning)} for tuning in arm.tunings
        ],
        "paper": arm.paper,
        **asdict(arm.costs),
        "curves": list(map(asdict, arm.curves)),
        "further_curves": {
            name: list(map(asdict, curves)) for name, curves in arm.further_curves.items()
        },
        "training_curves": list(map(asdict, arm.training_curves)),
    }
    return content | ({"layers": layers_to_json(arm.layers)} if arm.layers else {})
