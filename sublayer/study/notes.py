"""Notes of a report: limits of its numbers and selected trials."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sublayer.data.prepare import Data
from sublayer.data.tasks.batches import TaskSplit
from sublayer.objective.metric import Metric
from sublayer.objective.supervised.scores import REMEDY
from sublayer.runs.record import describe_small_test
from sublayer.statistics.difference import FEWEST_SEEDS
from sublayer.study.arms import Trial
from sublayer.study.evidence import StudyJudge
from sublayer.study.plan_file import StudyPlan
from sublayer.study.question import WHOLE_TEST, Scoring
from sublayer.study.results import Results
from sublayer.study.stage_recipes import Kept
from sublayer.study.stages import PRETRAINING, explain_nesting

_FACTS = ("device", "gpu", "processor", "instructions")
"""Facts about a machine that may change the rounding of sums."""


def list_notes(
    results: Results,
    judge: StudyJudge,
    plan: StudyPlan,
    trials: Mapping[str, Sequence[Trial]],
    kept: Kept | None,
) -> list[str]:
    """Return the notes of a report in display order.

    ``plan`` and, for stages, ``kept`` are from the study's folder; ``trials`` are by stage.
    """
    study, about = judge.study, plan.about
    assert about is not None, "it is written before the first run"
    notes = [] if kept is None else [explain_nesting(kept.chain, kept.n_seeds)]
    notes += [*study.caveats, *about.layer_notes, *(kept.cuts.values() if kept else ())]
    if kept is None and not results.has_verdicts:
        n_seeds = results.n_seeds
        few = "One seed gives" if n_seeds == 1 else f"{n_seeds} seeds give"
        enough = max([FEWEST_SEEDS, *plan.reported_seeds])
        notes.append(
            f"{few} values and no verdict, for the spread over seeds is unknown: --seeds {enough} "
            "gives an interval."
        )
    notes += _explain_choices(judge, trials, kept.tuning_number if kept else 0)
    card = results.scorecard
    collapsed = [
        f"{cell.n_collapsed} of {cell.n_runs} of {row.name} on {column.label}"
        for row in (card.rows if card else ())
        for column in (card.columns if card else ())
        if (cell := row.cells.get(column.name)) is not None and cell.n_collapsed
    ]
    if collapsed:
        notes.append(
            f"Collapsed runs, which give the same answer to every example: {'; '.join(collapsed)}. "
            f"A difference from such a mean is no difference in skill. What helps: {REMEDY}."
        )
    chosen = []
    # If the last checkpoint is kept, none is selected.
    if {str(arm.loaded.recipe.train.best_by) for arm in study.arms} != {"last"}:
        chosen.append("the checkpoint of each run")
    if plan.asked.tune:
        tuned = ", ".join(text.partition("=")[0] for text in plan.asked.tune)
        chosen.append(f"each arm's {tuned}")
    if kept is None and study.scoring.split == "valid" and chosen:
        notes.append(
            f"Scored on the validation split, which also chose {' and '.join(chosen)}: scores on "
            "other text would be worse."
        )
    notes += list_caveats(about.text_notes, results.metric, judge.elsewhere)
    if plan.jobs:
        notes.append(
            f"Up to {max(plan.jobs)} runs were trained at the same time on this machine: alone, "
            "each would have been faster."
        )
    if plan.clusters:
        notes.append(
            f"Runs were made on a cluster ({', '.join(plan.clusters)}), whose nodes may have had "
            "other work to do: seconds and tokens/s are not those of a run alone."
        )
    # Records of earlier versions name no instructions.
    by_machine: dict[str, Counter[str]] = {}
    for (arm, stage), stage_runs in judge.runs.items():
        for _, outcome in stage_runs.seeded():
            if outcome.record is not None:
                facts = outcome.record["machine"]
                machine = ", ".join(str(facts[fact]) for fact in _FACTS if facts.get(fact))
                by_machine.setdefault(machine, Counter())[f"{arm}, {stage}" if kept else arm] += 1
    if len(by_machine) > 1:
        parts = [
            f"{machine}: {', '.join(f'{n} of {name}' for name, n in counts.items())}"
            for machine, counts in by_machine.items()
        ]
        notes.append(
            f"Runs were made on different machines, whose rounding may differ: {'; '.join(parts)}."
        )
    return notes


def list_caveats(texts: Sequence[str], metric: Metric, elsewhere: Sequence[str]) -> list[str]:
    """Return the caveats of the text and of arms scored on other items."""
    notes = list(texts)
    if elsewhere and metric.basis == "items":
        notes.append(
            f"{', '.join(elsewhere)}: scored on other targets than the baseline, so {metric.label} "
            "cannot be compared, and there is no verdict."
        )
    return notes


def list_text_caveats(
    data: Mapping[str, Data],
    metric: Metric,
    scoring: Scoring = WHOLE_TEST,
    against: Mapping[str, str] | None = None,
) -> list[str]:
    """Return caveats of scores: small test text, differing texts, vocabularies, lossy tokenizers.

    ``data`` is by arm, the baseline first; ``metric`` is the deciding one; ``against`` names
    comparison partners other than the first arm; a control has itself.
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
    is_by_token = any(
        text.read_pairs is not None or text.sentence_starts is not None for text in texts.values()
    )
    if foreign and is_by_token:
        notes.append(
            f"{foreign}: another vocabulary than the baseline's, so nats per token, and accuracies "
            "of masked ones, cannot be compared."
        )
    lossy = [name for name, text in texts.items() if not text.store.is_lossless]
    if lossy and metric.basis == "bytes":
        notes.append(
            f"The tokenizer of {', '.join(lossy)} drops some bytes of the text, for which bits per "
            "byte do not pay."
        )
    return notes


def _others(data: Mapping[str, Data], what: str, against: Mapping[str, str]) -> str:
    """Name the arms whose text or tokenizer differs from their baseline's."""
    digests = {name: text.checksums.get(what) for name, text in data.items()}
    for name, text in data.items():
        for split in text.splits():
            if split.name == what and isinstance(split, TaskSplit):
                digests[name] = split.examples_digest
    first, *_ = data
    others = [name for name in data if digests[name] != digests[against.get(name, first)]]
    return ", ".join(others)


def _explain_choices(
    judge: StudyJudge, trials: Mapping[str, Sequence[Trial]], tuning_number: int
) -> Iterator[str]:
    """Yield the selected trial of each arm, the scores of all trials, and edges of the grid.

    A last note lists intervals that exclude tuning, since another metric selected.
    ``tuning_number`` is the seed of the trials of stages of tasks.
    """
    n_tuning = judge.n_tuning
    over = "" if n_tuning == 1 else f" (mean over {n_tuning} seeds)"
    other = ""
    for (arm, stage), stage_runs in judge.runs.items():
        if not stage_runs.losses:
            continue
        metric, chosen = stage_runs.chosen_by, stage_runs.trial
        label, factor, decimals = "loss", 1.0, 4
        if metric is not None:
            label, factor, decimals = metric.label, metric.factor, metric.decimals + 1
        who, by = arm, f"validation {label}{over}"
        if stage != PRETRAINING:
            who, decimals = f"{arm}, {stage}", decimals - 1
            by = f"score on held-out training examples (seed {tuning_number})"
        elif not stage_runs.is_chosen_by(judge.primary.metric):
            other = other or label
        scored = [
            f"{name}: {'failed' if score is None else f'{factor * score:z.{decimals}f}'}"
            for name, score in stage_runs.scores.items()
        ]
        text = f"{who}: {chosen.name} chosen by the {by}; {', '.join(scored)}."
        yield " ".join([text, *edges(chosen, trials[stage], stage_runs.losses)])
    if other and judge.n_seeds >= FEWEST_SEEDS:
        yield (
            f"Trials were chosen by their validation {other}, but the verdicts are on "
            f"{judge.primary.metric.label}: intervals do not include the uncertainty of tuning."
        )


def edges(
    chosen: Trial, trials: Sequence[Trial], scores: Mapping[str, float | None]
) -> Iterator[str]:
    """Yield notes on ties of the selected trial and on its values at an edge of the grid.

    ``scores`` are by trial. A value tied with another is at no edge.
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
        for end, which, beyond in (
            (max(tried), "highest", "higher"),
            (min(tried), "lowest", "lower"),
        ):
            if value == end and all(trial.settings[field] == value for trial in alike):
                yield (
                    f"{field} = {value:g} is the {which} value tried: a better one may lie beyond "
                    f"the grid, so try {beyond} values."
                )
