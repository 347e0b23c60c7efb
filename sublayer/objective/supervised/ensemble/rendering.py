"""How the scores of an ensemble are printed: its own, each run's alone, how members were chosen."""

from collections.abc import Mapping
from typing import Any

from sublayer.counts import count
from sublayer.files.paths import as_typed
from sublayer.objective.supervised.against import render_comparison
from sublayer.objective.supervised.report import (
    render_averages,
    render_baselines,
    render_reports,
    with_error,
)
from sublayer.tables import table
from sublayer.tasks.metrics.points import points


def render_ensemble(result: Mapping[str, Any]) -> str:
    """Format the scores for the terminal."""
    members = [each for each in result["members"] if each["is_member"]]
    n_runs = len(result["members"])
    chosen = "" if len(members) == n_runs else f", chosen of {n_runs} runs"
    lines = [f"the average of {count(len(members), 'run')}{chosen}:"]
    lines += [render_reports(result["tasks"]), *render_averages(result["averages"])]
    lines += render_baselines(result["tasks"])
    lines += ["each run alone, on the same examples:", _alone(result)]
    if result["choice"] is not None:
        lines += _choice(result["choice"])
    lines += _selected(result)
    lines += result["notes"]
    if "against" in result:
        lines += render_comparison(result["against"])
    return "\n".join(lines)


def _alone(result: Mapping[str, Any]) -> str:
    titles = [each["title"] for each in result["tasks"]]
    rows = []
    for each in result["members"]:
        scores = [with_error(task["score"], task["standard_error"]) for task in each["tasks"]]
        collapsed = "collapsed" if any(task["collapse"] for task in each["tasks"]) else ""
        member = "member" if each["is_member"] else "left out"
        rows.append((as_typed(each["run"]), *scores, member, collapsed))
    header = ["run", *titles, "", ""]
    return table(header, rows, right=[number for number, _ in enumerate(titles, 1)])


def _choice(choice: Mapping[str, Any]) -> list[str]:
    rows = count(choice["rows"], "row")
    by = f"by the score on {rows} that were held out of train, too high by that"
    if choice["how"] == "greedy":
        steps = ", then ".join(
            f"{as_typed(each['run'])} ({points(each['score'])})" for each in choice["steps"]
        )
        lines = [f"chosen one by one {by}: {steps}"]
    else:
        tried = count(choice["ensembles"], "ensemble")
        lines = [f"chosen as the best of {tried} {by}: {points(choice['score'])}"]
    if choice["rows_left_out"]:
        left_out = count(choice["rows_left_out"], "row")
        lines.append(f"held out, but scored, and so left out of the choice: {left_out}")
    return lines


def _selected(result: Mapping[str, Any]) -> list[str]:
    if result["part"] == "valid":
        return ["scored on what was held out, which chose the checkpoints: too good by that"]
    by_dev = [each["run"] for each in result["members"] if each["selected_by"] == "dev"]
    if not by_dev:
        return []
    return [
        "the development set chose the checkpoints that it scores (data.select = dev), as in the "
        f"papers: too good by that ({', '.join(map(as_typed, by_dev))})"
    ]
