"""How the scores of fine-tuning are printed."""

import shlex
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublayer.counts import count
from sublayer.files.paths import as_typed

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.runs.finetuning import SeedResult


def result_of(folder: Path, results: "Sequence[SeedResult]", recipe: "Recipe") -> dict[str, Any]:
    """Return the result of fine-tuning as JSON."""
    from sublayer.objective.supervised.scores import average_reports

    seeds = []
    for each in results:
        seeds.append(
            {
                "seed": each.seed,
                "run": str(each.folder),
                "score": each.score,
                "steps": each.record["step"],
                "seconds": each.record["seconds"],
                "tasks": [report.to_json() for report in each.reports],
                "averages": average_reports(each.reports),
                "task_bests": [report.to_json() for report in each.task_bests],
                "collapsed": each.has_collapsed,
            }
        )
    scores = [each.score for each in results]
    return {
        "run": str(folder),
        "select": "last" if recipe.train.best_by == "last" else recipe.data.select,
        "median": statistics.median(scores),
        "lowest": min(scores),
        "best": max(scores),
        "collapsed": sum(each.has_collapsed for each in results),
        "seeds": seeds,
    }


def render_finetuned(result: Mapping[str, Any]) -> str:
    """Format the result of fine-tuning for the terminal."""
    from sublayer.objective.supervised.rendering import (
        render_averages,
        render_baselines,
        render_reports,
    )
    from sublayer.objective.supervised.scores import REMEDY
    from sublayer.tasks.metrics.points import points

    seeds = result["seeds"]
    folder = as_typed(result["run"])
    lines = []
    if len(seeds) == 1:
        lines.append(render_reports(seeds[0]["tasks"]))
        lines += render_averages(seeds[0]["averages"])
        if seeds[0]["task_bests"]:
            lines.append("each task by the checkpoint that was best for it:")
            lines.append(render_reports(seeds[0]["task_bests"]))
    else:
        # The seed in the middle stands for all of them.
        ordered = sorted(seeds, key=lambda each: each["score"])
        middle = ordered[(len(seeds) - 1) // 2]
        lines.append(render_reports(middle["tasks"]))
        lines += render_averages(middle["averages"])
        shown = ", ".join(points(each["score"]) for each in seeds)
        lines.append(
            f"{count(len(seeds), 'seed')}: median {points(result['median'])}, from "
            f"{points(result['lowest'])} to {points(result['best'])} (the best of several is "
            f"too good by chance): {shown}"
        )
    lines += render_baselines(seeds[0]["tasks"])
    if result["collapsed"]:
        lines.append(
            f"collapsed: {result['collapsed']} of {count(len(seeds), 'run')}; what helps: {REMEDY}"
        )
        if len(seeds) > 1:
            for each in seeds:
                for task in each["tasks"]:
                    if task["collapse"]:
                        lines.append(f"  seed {each['seed']}, {task['title']}: {task['collapse']}")
    if result["select"].startswith("dev"):
        lines.append(
            "selected by the development set, which is what is scored (data.select = "
            f"{result['select']}): as in the papers, and too good by that"
        )
    lines.append(f"model and record: {folder}")
    lines.append(f"next: sublayer predict {shlex.quote(as_typed(seeds[0]['run']))}")
    return "\n".join(lines)
