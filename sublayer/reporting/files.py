"""The files of a comparison: its report and ``results.json``, after its runs or from its folder."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sublayer.config.sources import RUN_RECIPE
from sublayer.errors import ConfigError, TrainingError
from sublayer.files.paths import resolved
from sublayer.files.storage import write_file, write_json
from sublayer.numbers import NO_BREAK
from sublayer.objective.metric import Metric
from sublayer.reporting.budgets import describe_largest
from sublayer.reporting.export import check_table_files, write_tables
from sublayer.reporting.html import render_report, write_report
from sublayer.reporting.run_page import render_run
from sublayer.reporting.scorecard import card_json
from sublayer.reporting.words import headline
from sublayer.statistics.difference import CONFIDENCE, Difference
from sublayer.study.budget.excess import budget_to_json
from sublayer.study.definition import Overrides
from sublayer.study.findings.comparisons import (
    arm_budgets,
    differing_fields,
    secondary_analyses,
    secondary_to_json,
    tuned_best,
)
from sublayer.study.findings.curves import SameQuality, final_losses, same_quality
from sublayer.study.finished_runs import RUNS, compare_runs, read_paths
from sublayer.study.inspection import layers_to_json
from sublayer.study.options import Options
from sublayer.study.plan_file import PLAN
from sublayer.study.read_results import results_of_folder
from sublayer.study.results import (
    REPORT,
    RESULTS,
    ArmResult,
    Curve,
    Further,
    Reproduction,
    Results,
    Tuning,
)
from sublayer.study.runner import run_study
from sublayer.study.seal import Sealing
from sublayer.system.stages import stage

_HEADING = '<h1 id="verdict">'
"""What a comparison's report has, whichever command wrote it."""


def report_study(
    sources: Sequence[str], overrides: Overrides, options: Options
) -> tuple[Results, Path]:
    """Run a study, or what is missing of it, and write its report; return results and report.

    Raises what ``run_study`` does, and TrainingError, the report written, where no arm is left with
    two seeds to compare, or with the one that was planned.
    """
    results, folder = run_study(sources, overrides, options)
    report = write_results(results, folder)
    _check_compared(results, report)
    return results, report


def write_results(results: Results, folder: Path) -> Path:
    """Write the report and ``results.json`` into a folder, and return the path of the report."""
    report = folder / REPORT
    with stage("writing the report"):
        write_report(results, report)
        write_json(folder / RESULTS, results_to_json(results, report))
    return report


def report_again(folder: Path, out: Path | None = None, tables: Sequence[Path] = ()) -> Path:
    """Write the report of what is in ``folder``, and ``tables``; return the report's absolute path.

    A comparison's report replaces the report in its folder. Raises ConfigError where the folder
    holds neither a run nor a comparison, where the file is no report of this folder, and where a
    table is there already or of a run, and
    CheckpointError where what is in it is damaged.
    """
    target = out or folder / REPORT
    mark = f"<!-- sublayer report of {_escaped(str(resolved(folder)))} -->"
    is_own = out is None and (folder / PLAN).is_file()
    _check_free(target, mark, is_own=is_own or (out is None and (folder / RUNS).is_file()))
    check_table_files(tables)
    results = None
    if (folder / PLAN).is_file():
        results = results_of_folder(folder)
    elif (folder / RUNS).is_file():
        # What was scored is kept in the folder, so that nothing is computed again.
        results, _ = compare_runs(read_paths(folder), folder)
        write_results(results, folder)
    if results is not None:
        page = render_report(results)
        for path in tables:
            write_tables(results, path)
    elif tables:
        raise ConfigError(f"--table is for a comparison, and {folder} holds none: leave it out")
    elif (folder / RUN_RECIPE).is_file():
        page = render_run(folder)
    else:
        raise ConfigError(f"{folder} holds neither a run nor a comparison: see sublayer runs")
    write_file(target, f"{page.rstrip()}\n{mark}\n")
    return resolved(target)


def _check_compared(results: Results, report: Path) -> None:
    """Raise TrainingError where so much failed that nothing is compared with the baseline."""
    differences = results.differences
    if results.has_verdicts:
        # Ranks tell something where not all runs failed.
        has_values = any(arm.values for arm in results.arms)
        is_compared = has_values and any(
            each.low is not None or each.by_ranks for each in differences
        )
        needed = "two seeds that finished, as the baseline has,"
    else:
        is_compared = any(difference.mean is not None for difference in differences)
        needed = "a seed that finished beside the baseline's"
    if not is_compared:
        raise TrainingError(f"no arm has {needed}: see {report}")


def _check_free(target: Path, mark: str, *, is_own: bool) -> None:
    if not target.exists():
        return
    lines = target.read_bytes().decode("utf-8", "replace").splitlines() if target.is_file() else []
    is_report = is_own and any(line.startswith(_HEADING) for line in lines)
    if lines[-1:] != [mark] and not is_report:
        raise ConfigError(f"{target} is there and is no report of this folder: give another --out")


def _escaped(text: str) -> str:
    # Two hyphens would end the comment early.
    return text.replace("--", "-&#45;").replace(">", "&gt;")


def results_to_json(results: Results, report: Path) -> dict[str, Any]:
    """Build the object that ``compare --json`` prints; ``report`` becomes an absolute path."""
    return {
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
        "arms": _arms_to_json(results),
        "n_comparisons": results.n_comparisons,
        "differences": [
            {**_difference_to_json(difference), "secondary": secondary_to_json(found)}
            for difference, found in zip(
                results.differences, secondary_analyses(results), strict=True
            )
        ],
        "further": [_further_to_json(further) for further in results.further],
        "same_quality": [_same_quality_to_json(each) for each in same_quality(results)],
        "failures": [asdict(failure) for failure in results.failures],
        "notes": list(results.notes),
        "margin": results.margin,
        "margin_reason": results.margin_reason,
        "hypothesis": _hypothesis_to_json(results),
        "pairing": None if results.pairing is None else asdict(results.pairing),
        "looks": list(results.looks),
        "is_sequential": results.is_sequential,
        "name": results.name,
        "title": results.title,
        "planned_seeds": results.n_seeds,
        "reproduction": _reproduction_to_json(results.reproduction),
        "differing": _differing_to_json(results),
        "plan": _plan_to_json(results.sealing),
        **({} if results.scorecard is None else {"scorecard": card_json(results.scorecard)}),
    }


def _arms_to_json(results: Results) -> list[dict[str, Any]]:
    arms = []
    for arm, budget in zip(results.arms, arm_budgets(results), strict=True):
        content = _arm_to_json(arm, results.metric)
        content["excess"] = budget_to_json(budget)
        arms.append(content)
    return arms


def _arm_to_json(arm: ArmResult, metric: Metric) -> dict[str, Any]:
    further = {}
    for name, values in arm.further.items():
        further[name] = {"seeds": list(values), "values": list(values.values())}
    return {
        "name": arm.name,
        "parameters": dict(arm.parameters),
        "seeds": list(arm.seeds),
        "values": list(arm.values),
        "mean": arm.mean,
        "sd": arm.sd,
        "mismatch": arm.mismatch,
        "published": dict(arm.published),
        "further": further,
        "sample": None if arm.sample is None else asdict(arm.sample),
        "final_losses": asdict(final_losses(arm, metric)),
        "matched": list(arm.matched),
        "tuned": list(arm.tuned),
        "tunings": [_tuning_to_json(each) for each in arm.tunings],
        "paper": dict(arm.paper),
        **asdict(arm.costs),
        "curves": [_curve_to_json(curve) for curve in arm.curves],
        "further_curves": {
            name: [_curve_to_json(curve) for curve in curves]
            for name, curves in arm.further_curves.items()
        },
        "training_curves": [_curve_to_json(curve) for curve in arm.training_curves],
        **({"layers": layers_to_json(arm.layers)} if arm.layers else {}),
    }


def _tuning_to_json(tuning: Tuning) -> dict[str, Any]:
    best = list(tuned_best(tuning))
    return {**asdict(tuning), "scores": dict(tuning.scores), "expected_best": best}


def _curve_to_json(curve: Curve) -> dict[str, Any]:
    content = {}
    for name, value in asdict(curve).items():
        content[name] = list(value) if isinstance(value, Sequence) else value
    return content


def _further_to_json(further: Further) -> dict[str, Any]:
    return {
        "metric": further.metric.name,
        "is_lower_better": further.metric.is_lower_better,
        "differences": [_difference_to_json(difference) for difference in further.differences],
    }


def _hypothesis_to_json(results: Results) -> dict[str, Any] | None:
    if results.hypothesis_of is None:
        return None
    arm, baseline = results.hypothesis_of
    return {"says": results.hypothesis, "arm": arm, "baseline": baseline}


def _difference_to_json(difference: Difference) -> dict[str, Any]:
    return {**asdict(difference), "seeds": list(difference.seeds)}


def _reproduction_to_json(reproduction: Reproduction) -> dict[str, Any]:
    content = asdict(reproduction)
    if reproduction.text is not None:
        content["text"] = {**content["text"], "names": list(reproduction.text.names)}
    return content


def _plan_to_json(sealing: Sealing | None) -> dict[str, Any] | None:
    if sealing is None or not sealing.hash:
        return None
    return {
        "sealed": sealing.date,
        "hash": sealing.hash,
        "additions": list(sealing.additions),
        "alterations": list(sealing.alterations),
    }


def _differing_to_json(results: Results) -> dict[str, Any]:
    differing = {}
    for field, settings in differing_fields(results.arms).items():
        differing[field] = {name: asdict(setting) for name, setting in settings.items()}
    return differing


def _same_quality_to_json(found: SameQuality) -> dict[str, Any]:
    summaries = {}
    for cost in ("steps", "flops", "seconds"):
        summaries[cost] = asdict(found.summary(cost))
    return {
        "arm": found.arm,
        "of": found.whose,
        "metric": found.metric.name,
        **summaries,
        "parameters": found.parameters,
        "seeds": [asdict(each) for each in found.seeds],
        "problem": found.problem,
    }
