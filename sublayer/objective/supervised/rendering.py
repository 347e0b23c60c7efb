"""Terminal text of fine-tuned models' scores: single, ensemble, comparison."""

from collections.abc import Mapping, Sequence
from typing import Any

from sublayer.counts import count
from sublayer.files.storage import as_typed
from sublayer.numbers import interval_ends
from sublayer.tables import table
from sublayer.tasks.baselines import BASELINES
from sublayer.tasks.metrics import METRICS
from sublayer.tasks.scoring import points, signed_points


def render_tasks(result: Mapping[str, Any]) -> str:
    """Format the scores of a model, or of an ensemble, for the terminal."""
    runs = result.get("members", ())
    lines = []
    if runs:
        n_members = sum(run["is_member"] for run in runs)
        chosen = "" if n_members == len(runs) else f", chosen of {len(runs)} runs"
        lines.append(f"the average of {count(n_members, 'run')}{chosen}:")
    lines += [render_reports(result["tasks"]), *render_averages(result["averages"])]
    lines += render_baselines(result["tasks"])
    if runs:
        lines += ["each run alone, on the same examples:", _alone(result)]
        lines += [] if result["choice"] is None else _choice(result["choice"])
    by_dev = [run for run in runs or (result,) if str(run["selected_by"]).startswith("dev")]
    if result["part"] == "valid":
        lines.append("scored on what was held out, which chose the checkpoint: too good by that")
    elif by_dev:
        names = ", ".join(as_typed(run["run"]) for run in by_dev)
        lines.append(
            "the development set chose the checkpoint that it scores (data.select = "
            f"{by_dev[0]['selected_by']}), as in the papers: too good by that ({names})"
        )
    lines += result["notes"]
    if "against" in result:
        lines += render_comparison(result["against"])
    return "\n".join(lines)


def _alone(result: Mapping[str, Any]) -> str:
    titles = [task["title"] for task in result["tasks"]]
    rows = []
    for run in result["members"]:
        scores = [with_error(task["score"], task["standard_error"]) for task in run["tasks"]]
        collapsed = "collapsed" if any(task["collapse"] for task in run["tasks"]) else ""
        member = "member" if run["is_member"] else "left out"
        rows.append((as_typed(run["run"]), *scores, member, collapsed))
    header = ["run", *titles, "", ""]
    return table(header, rows, right=[number for number, _ in enumerate(titles, 1)])


def _choice(choice: Mapping[str, Any]) -> list[str]:
    rows = count(choice["rows"], "row")
    by = f"by the score on {rows} that were held out of train, too high by that"
    steps = ", then ".join(
        f"{as_typed(step['run'])} ({points(step['score'])})" for step in choice["steps"]
    )
    lines = [f"chosen one by one {by}: {steps}"]
    if choice["rows_left_out"]:
        left_out = count(choice["rows_left_out"], "row")
        lines.append(f"held out, but scored, and so left out of the choice: {left_out}")
    return lines


def render_reports(reports: Sequence[Mapping[str, Any]]) -> str:
    """Format reports from ``to_json`` as a table with conclusions."""
    rows = []
    notes = []
    beside = [name for name in BASELINES if any(name in report["baselines"] for report in reports)]
    # Without baselines the columns show their absence.
    beside = beside or ["majority", "words"]
    for report in reports:
        parts = [
            f"{METRICS[name].title} {points(score['value'])}"
            for name, score in report["metrics"].items()
        ]
        baselines = {name: score["score"] for name, score in report["baselines"].items()}
        rows.append(
            (
                report["title"],
                f"{report['examples']:,}",
                with_error(report["score"], report["standard_error"]),
                ", ".join(parts),
                *(points(baselines[name]) if name in baselines else "" for name in beside),
            )
        )
        notes += _notes(report, *_strongest(baselines))
    header = ["task", "examples", "score", "metrics", *beside]
    return "\n".join([table(header, rows, right=[1, 2, *range(4, len(header))]), *notes])


def _strongest(baselines: Mapping[str, float]) -> tuple[str, float | None]:
    """Return the baseline for comparison, words or copying, and its score."""
    if "copy" in baselines:
        return "copy, which returns the text unchanged", baselines["copy"]
    return "words, which knows nothing but words", baselines.get("words")


def _notes(report: Mapping[str, Any], beside: str, words: float | None) -> list[str]:
    notes = []
    title = report["title"]
    if report["collapse"]:
        notes.append(f"{title}: the run collapsed: {report['collapse']}")
    error = report["standard_error"] or 0.0
    if words is None:
        notes.append(f"{title}: no training rows are here, from which the baselines would learn")
    elif report["score"] < words:
        notes.append(f"{title}: below {beside}")
    elif report["score"] - words < 2 * error:
        notes.append(
            f"{title}: less than two standard errors above {beside.partition(',')[0]}: too few "
            "examples to tell"
        )
    if report["outside"]:
        notes.append(f"{title}: {report['outside']:,} answers are none of the labels, and wrong")
    for key, kind in (("answerable", "with an answer"), ("unanswerable", "without one")):
        if key in report:
            apart = report[key]
            notes.append(
                f"{title}: {count(apart['n'], 'question')} {kind}: EM {points(apart['exact'])}, "
                f"F1 {points(apart['f1'])}"
            )
    for name, metric in report["metrics"].items():
        if metric["reason"]:
            notes.append(f"{title}: {METRICS[name].title} is 0: {metric['reason']}")
    return notes


def render_averages(averages: Mapping[str, float]) -> list[str]:
    """Format the averages of suites, a line each."""
    return [f"average of {title}: {points(value)}" for title, value in averages.items()]


def render_baselines(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe the baselines of reports, with tasks where they differ."""
    lines = []
    for name in BASELINES:
        titles: dict[str, list[str]] = {}
        for report in reports:
            if name in report["baselines"]:
                described = report["baselines"][name]["description"]
                titles.setdefault(described, []).append(report["title"])
        for described, names in titles.items():
            which = "" if len(titles) == 1 else f" of {', '.join(dict.fromkeys(names))}"
            lines.append(f"{name}{which}: {described}")
    return lines


def with_error(value: float, error: float | None) -> str:
    """Format a score with its standard error, if any."""
    return points(value) if error is None else f"{points(value)} ± {points(error)}"


def render_comparison(result: Mapping[str, Any]) -> list[str]:
    """Format the result of ``compare_with``: a heading, and a line for each task."""
    lines = [f"against {result['run']}, on the same examples:"]
    for task in result["tasks"]:
        low, high = interval_ends([100 * end for end in task["interval"]], 1)
        verdict = "more than chance" if task["is_decided"] else "cannot tell"
        line = (
            f"{task['title']}: {points(task['value'])} and {points(task['other'])}, difference "
            f"{signed_points(task['difference'])}, 95% CI {low} to {high}: {verdict}"
        )
        if task["p_mcnemar"] is not None:
            line += (
                f"; {task['n_only_first']:,} right here alone, {task['n_only_other']:,} there "
                f"alone, McNemar's p = {task['p_mcnemar']:.2g}"
            )
        lines.append(line)
    return lines
