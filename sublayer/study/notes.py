"""The notes of a comparison: limits of its numbers, choices of its arms, budgets in words."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sublayer.counts import enumerate_names
from sublayer.data.prepare import Data
from sublayer.data.tasks.batches import TaskSplit
from sublayer.numbers import NO_BREAK, format_duration, format_excess, format_factor
from sublayer.objective.metric import Metric
from sublayer.objective.supervised.scores import REMEDY
from sublayer.runs.record import describe_small_test
from sublayer.statistics.difference import FEWEST_SEEDS
from sublayer.study.arms import Arm, Trial
from sublayer.study.budget.match import TIME_TOLERANCE, ArmBudget, Currency, Excess
from sublayer.study.comparisons import compared_budgets
from sublayer.study.definition import Study
from sublayer.study.evidence import scored_elsewhere
from sublayer.study.jobs.run import Outcome
from sublayer.study.plan_file import Plan
from sublayer.study.results import SIGNATURE, Reproduction, Results, StudyText
from sublayer.study.runs import Runs
from sublayer.study.scoring import WHOLE_TEST, Scoring
from sublayer.tasks.scoring import points

COLUMNS: dict[Currency, str] = {
    "parameters": "parameters",
    "operations": "operations",
    "time": "training time",
}
DOUBLE = 2.0
"""From so many times on a factor is told, and no percentage."""


def describe_planned(budgets: Sequence[ArmBudget]) -> str:
    """Format by how much the planned budgets of arms differ at most, without what differs."""
    return describe_excesses([budget.planned for budget in budgets]) or "equal to half a percent"


def time_caveats(results: Results) -> list[str]:
    """Say which arms were matched by time and did not train for equal time; nothing where all did.

    It is measured before the runs, and of the runs.
    """
    longer = []
    for budget in compared_budgets(results):
        share = budget.realised.beyond.get("time")
        if share is not None and budget.against is not None:
            than = "longer" if share > 0 else "shorter"
            longer.append(f"{budget.arm} {format_excess(share)} {than} than {budget.against}")
    if not longer:
        return []
    return [
        "Time was matched by step times measured before the runs, but the runs took different "
        f"times: {', '.join(longer)} (medians over seeds; up to {100 * TIME_TOLERANCE:.0f}"
        f"{NO_BREAK}% counts as clock noise). These verdicts are not at equal time."
    ]


def describe_excesses(excesses: Sequence[Excess]) -> str:
    """Format by how much some budgets differ at most, in each currency; empty for nothing."""
    parts = []
    for currency, name in COLUMNS.items():
        largest = max((one.beyond.get(currency, 0.0) for one in excesses), key=_times, default=0)
        if largest:
            parts.append(f"{_size(largest)} in {name}")
    if not parts:
        return ""
    up_to = "up to " if len(excesses) > 1 else ""
    return f"differ by {up_to}{enumerate_names(parts)}"


def _times(share: float) -> float:
    """Return how many times as much the one takes that takes more."""
    factor = 1.0 + share
    return max(factor, 1.0 / factor) if factor > 0.0 else math.inf


def _size(share: float) -> str:
    factor = _times(share)
    return f"a factor of {format_factor(factor)}" if factor >= DOUBLE else format_excess(share)


def list_notes(
    results: Results,
    study: Study,
    runs: Runs,
    plan: Plan,
    trials: Sequence[Trial],
) -> tuple[str, ...]:
    """Return the notes for readers of a comparison of ``runs``, in the order that they are shown.

    ``plan`` is its folder's, ``trials`` are the planned ones.
    """
    about, tune = plan.about, plan.asked.tune
    notes = [*study.caveats, *(about.layer_notes if about else ())]
    if not results.has_verdicts:
        notes.append(explain_one_seed(results, plan.reported_seeds))
    notes += explain_choices(runs, trials, len(plan.asked.tuning_seeds))
    if results.has_verdicts:
        notes += explain_unknown_choice(runs, results.metric)
    notes += time_caveats(results)
    outcomes = {arm: [one for _, one in runs_of.seeded()] for (arm, _), runs_of in runs.items()}
    notes += list_caveats(
        about.text_notes if about else (),
        metric=results.metric,
        elsewhere=scored_elsewhere(runs, results.baseline, results.metric, study.against),
        jobs=plan.jobs,
        clusters=plan.clusters,
        machines=list_differing_machines(outcomes),
        scoring=study.scoring,
        chosen=chosen_by_validation(study.arms, tune),
    )
    return tuple(notes)


def list_caveats(
    texts: Sequence[str],
    *,
    metric: Metric,
    elsewhere: Sequence[str] = (),
    jobs: Sequence[int] = (),
    clusters: Sequence[str] = (),
    machines: Sequence[str] = (),
    scoring: Scoring = WHOLE_TEST,
    chosen: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return what weakens a comparison, a sentence or two each.

    ``texts`` are the caveats of its text; ``metric`` decides; ``elsewhere`` are arms that it scored
    on other items than their baseline; ``jobs`` are numbers of runs that were made at a time, other
    than one, ``clusters`` the kinds of clusters that made runs, and ``machines`` sentences on
    those that differ; ``scoring`` is the rule of scoring, and ``chosen`` are the choices that the
    validation split made.
    """
    notes = []
    if scoring.split == "valid" and chosen:
        notes.append(
            f"Scored on the validation split, which also chose {' and '.join(chosen)}: scores on "
            "other text would be worse."
        )
    notes += texts
    if elsewhere and metric.basis == "items":
        notes.append(
            f"{', '.join(elsewhere)}: scored on other targets than the baseline, so {metric.label} "
            "cannot be compared, and there is no verdict."
        )
    if jobs:
        notes.append(
            f"Up to {max(jobs)} runs were trained at the same time on this machine: alone, each "
            "would have been faster."
        )
    if clusters:
        notes.append(
            f"Runs were made on a cluster ({', '.join(clusters)}), whose nodes may have had other "
            "work to do: seconds and tokens/s are not those of a run alone."
        )
    notes += machines
    return tuple(notes)


def explain_one_seed(results: Results, looks: Sequence[int] = ()) -> str:
    """Return why so few seeds give no verdict, and what one costs, in a few sentences.

    ``looks`` are the numbers of seeds of all reports so far, whose runs are there.
    """
    n_seeds, n_arms = results.n_seeds, len(results.arms)
    few = "One seed gives" if n_seeds == 1 else f"{n_seeds} seeds give"
    text = f"{few} values and no verdict, for the spread over seeds is unknown. "
    n_trained = max((*looks, n_seeds))
    if n_trained >= FEWEST_SEEDS:
        return f"{text}{n_trained} seeds have been trained: --seeds {n_trained} gives an interval."
    seconds = [arm.costs.seconds for arm in results.arms if arm.costs.seconds is not None]
    cost = f"{n_arms} runs"
    if len(seconds) == n_arms:
        cost += f" of {format_duration(sum(seconds))} together"
    times = "twice " if FEWEST_SEEDS - n_trained == 2 else ""
    return f"{text}Three seeds give an interval: --seeds 3 adds {times}{cost}."


def list_text_caveats(
    data: Mapping[str, Data],
    metric: Metric,
    scoring: Scoring = WHOLE_TEST,
    against: Mapping[str, str] | None = None,
) -> list[str]:
    """Return caveats of values: a small text, other texts, other vocabularies and lossy ones.

    ``data`` is each arm's by name, the baseline's first; ``metric`` decides; ``scoring`` is the
    rule of scoring; ``against`` has the arms that have another baseline than the first, or none,
    which is themselves.
    """
    against = against or {}
    notes: list[str] = []
    small = describe_small_test(next(iter(data.values()))) if scoring.split == "test" else None
    if small:
        notes.append(f"{small[0].upper()}{small[1:]}.")
    other_text = _others(data, scoring.split, against)
    if other_text:
        notes.append(
            f"{other_text}: scored on another text than the baseline. Give all arms the same text "
            f"by data.{scoring.split}_path."
        )
    foreign = _others(data, "tokenizer", against)
    texts = {name: scoring.split_of(text) for name, text in data.items()}
    if foreign and any(text.read_pairs is not None for text in texts.values()):
        notes.append(
            f"{foreign}: another vocabulary than the baseline's, so nats per token cannot be "
            "compared."
        )
    elif foreign and any(text.sentence_starts is not None for text in texts.values()):
        notes.append(
            f"{foreign}: another vocabulary than the baseline's, so other tokens are masked, and "
            "accuracies and nats of masked tokens cannot be compared."
        )
    lossy = [name for name, text in texts.items() if not text.store.is_lossless]
    if lossy and metric.basis == "bytes":
        notes.append(
            f"The tokenizer of {', '.join(lossy)} drops some bytes of the text, for which bits per "
            "byte do not pay."
        )
    return notes


def _others(data: Mapping[str, Data], what: str, against: Mapping[str, str]) -> str:
    """Name the arms in whose data something is another than in that of their baseline."""
    first, *_ = data
    names = []
    for name, text in data.items():
        baseline = data[against.get(name, first)]
        if _digest(text, what) != _digest(baseline, what):
            names.append(name)
    return ", ".join(names)


def _digest(data: Data, what: str) -> str:
    for split in data.splits():
        if split.name == what and isinstance(split, TaskSplit):
            return split.examples_digest
    return data.checksums[what]


def chosen_by_validation(arms: Sequence[Arm], tune: Sequence[str]) -> list[str]:
    """Return the choices of the validation split in runs of arms; ``tune`` has the tuned fields."""
    chosen = []
    # Where the last checkpoint is kept nothing chooses one.
    if {str(arm.loaded.recipe.train.best_by) for arm in arms} != {"last"}:
        chosen.append("the checkpoint of each run")
    if tune:
        chosen.append(f"each arm's {', '.join(text.partition('=')[0] for text in tune)}")
    return chosen


def explain_choices(runs: Runs, trials: Sequence[Trial], n_tuning: int = 1) -> tuple[str, ...]:
    """Say of each arm its chosen trial, the scores of all, and where the best lies at an edge.

    ``n_tuning`` are the seeds of each trial. Empty where nothing was tuned.
    """
    over = "" if n_tuning == 1 else f" (mean over {n_tuning} seeds)"
    notes = []
    for (name, _), stage_runs in runs.items():
        if not stage_runs.losses:
            continue
        losses, metric = stage_runs.losses, stage_runs.chosen_by
        what = "loss" if metric is None else metric.label
        scored = ", ".join(f"{trial}: {_scored(loss, metric)}" for trial, loss in losses.items())
        chosen = stage_runs.trial
        text = f"{name}: {chosen.name} chosen by the validation {what}{over}; {scored}."
        notes.append(" ".join([text, *edges(chosen, trials, losses)]))
    return tuple(notes)


def explain_unknown_choice(runs: Runs, metric: Metric) -> tuple[str, ...]:
    """Say that intervals leave other tunings out, where trials were chosen by another metric."""
    for stage_runs in runs.values():
        if stage_runs.losses and not stage_runs.is_chosen_by(metric):
            by = "loss" if stage_runs.chosen_by is None else stage_runs.chosen_by.label
            return (
                f"Trials were chosen by their validation {by}, but the verdicts are on "
                f"{metric.label}: intervals do not include the uncertainty of tuning.",
            )
    return ()


def _scored(loss: float | None, metric: Metric | None) -> str:
    if loss is None:
        return "failed"
    if metric is None:
        return f"{loss:.4f}"
    value = loss if metric.is_lower_better else -loss
    return f"{metric.factor * value:z.{metric.decimals + 1}f}"


def explain_stage_choices(
    runs: Runs, trials: Mapping[str, Sequence[Trial]], tuning_number: int
) -> tuple[str, ...]:
    """Name the trial that each arm chose in each stage, the scores of others, and edges of grids.

    ``tuning_number`` is the seed of the trials. Empty where nothing was tuned.
    """
    notes = []
    for (arm, stage), stage_runs in runs.items():
        if not stage_runs.losses:
            continue
        scored = [
            f"{name}: {'failed' if score is None else points(score)}"
            for name, score in stage_runs.scores.items()
        ]
        chosen = stage_runs.trial
        text = (
            f"{arm}, {stage}: {chosen.name} chosen by the score on held-out training examples "
            f"(seed {tuning_number}); {', '.join(scored)}."
        )
        notes.append(" ".join([text, *edges(chosen, trials[stage], stage_runs.losses)]))
    return tuple(notes)


def explain_collapses(results: Results) -> tuple[str, ...]:
    """Name the arms whose runs collapsed, with their numbers: their scores show no skill."""
    card = results.scorecard
    if card is None:
        return ()
    collapsed = []
    for row in card.rows:
        for column in card.columns:
            cell = row.cells.get(column.name)
            if cell is not None and cell.n_collapsed:
                collapsed.append(
                    f"{cell.n_collapsed} of {cell.n_runs} of {row.name} on {column.label}"
                )
    if not collapsed:
        return ()
    return (
        f"Collapsed runs, which give the same answer to every example: {'; '.join(collapsed)}. A "
        f"difference from such a mean is no difference in skill. What helps: {REMEDY}.",
    )


def edges(
    chosen: Trial, trials: Sequence[Trial], scores: Mapping[str, float | None]
) -> Iterator[str]:
    """Say which trials scored the same as the chosen one, and which of its numbers lie at an edge.

    ``scores`` are by trial. A number that others share the best score with is at no edge.
    """
    best = scores.get(chosen.name)
    alike = [trial for trial in trials if best is not None and scores.get(trial.name) == best]
    if len(alike) > 1:
        names = " and ".join(trial.name for trial in alike)
        yield f"{names} scored the same: the lower validation loss decided."
    for field, value in chosen.settings.items():
        tried = [trial.settings[field] for trial in trials]
        if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in tried):
            continue
        edges = {min(tried): "lowest", max(tried): "highest"}
        is_alone = all(trial.settings[field] == value for trial in alike)
        if value in edges and is_alone:
            beyond = "lower" if value == min(tried) else "higher"
            yield (
                f"{field} = {value:g} is the {edges[value]} value tried: a better one may lie "
                f"beyond the grid, so try {beyond} values."
            )


_FACTS = ("device", "gpu", "processor", "instructions")
"""Facts of a record's machine that may round sums otherwise."""


def describe_reproduction(
    outcomes: Iterable[Outcome], texts: Sequence[str], command: str
) -> Reproduction:
    """Describe the environment and the text of runs by their records; ``command`` repeats them.

    All is of the first record, but for commits, which are all named, and the date, which is the
    last; ``texts`` are the names of the first arm's. All but the command is empty where no run has
    a record.
    """
    outcomes = list(outcomes)
    records = [outcome.record for outcome in outcomes if outcome.record is not None]
    if not records:
        return Reproduction(command)
    first = records[0]
    facts = {**first["versions"], "commit": first["commit"], **first["machine"]}
    facts |= {"precision": first["precision"], "threads": first["threads"]}
    commits = sorted({str(record["commit"]) for record in records})
    if len(commits) > 1:
        facts["commit"] = ", ".join(commits)
    for outcome in outcomes:  # the signatures of translations' scores, of the first that has them
        if outcome.test is not None and outcome.test.get("signature"):
            signatures: Any = outcome.test["signature"]
            facts |= {f"{SIGNATURE}{measure}": value for measure, value in signatures.items()}
            break
    # Records of earlier versions do not have all splits.
    splits = [split for split in ("train", "valid", "test") if split in first["data"]]
    return Reproduction(
        command,
        {name: str(value) for name, value in facts.items() if value is not None},
        {f"data, {name}": str(value) for name, value in first["data"]["checksums"].items()},
        text=StudyText(tuple(texts), {split: dict(first["data"][split]) for split in splits}),
        date=max(str(record.get("date", "")) for record in records),
    )


def list_differing_machines(outcomes: Mapping[str, Iterable[Outcome]]) -> list[str]:
    """Return a sentence where runs, by arm, had machines that differ; nothing where none did.

    Records of earlier versions name no instructions.
    """
    by_machine: dict[str, dict[str, int]] = {}
    for arm, runs in outcomes.items():
        for outcome in runs:
            if outcome.record is not None:
                machine = outcome.record["machine"]
                name = ", ".join(str(machine[fact]) for fact in _FACTS if machine.get(fact))
                counts = by_machine.setdefault(name, {})
                counts[arm] = counts.get(arm, 0) + 1
    if len(by_machine) < 2:
        return []
    parts = [
        f"{machine}: {', '.join(f'{n} of {arm}' for arm, n in counts.items())}"
        for machine, counts in by_machine.items()
    ]
    return [f"Runs were made on different machines, whose rounding may differ: {'; '.join(parts)}."]
