"""Results as JSON: ``results.json``, and what ``compare --json`` prints."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sublayer.files.paths import resolved
from sublayer.numbers import NO_BREAK
from sublayer.objective.metric import Metric
from sublayer.reporting.scorecard_cells import card_json
from sublayer.reporting.words import headline
from sublayer.statistics.difference import CONFIDENCE, Difference
from sublayer.study.budget.excess import budget_to_json
from sublayer.study.budget.words import describe_largest
from sublayer.study.findings.comparisons import (
    arm_budgets,
    differing_fields,
    secondary_analyses,
    secondary_to_json,
    tuned_best,
)
from sublayer.study.findings.curves import SameQuality, final_losses, same_quality
from sublayer.study.inspection import layers_to_json
from sublayer.study.results import ArmResult, Curve, Further, Reproduction, Results, Tuning
from sublayer.study.seal import Sealing


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
