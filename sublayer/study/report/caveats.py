"""The caveats of a report: what its numbers do not show."""

from collections.abc import Mapping, Sequence

from sublayer.data.prepare import Data
from sublayer.objective.metric import Metric
from sublayer.runs.small_test import describe_small_test
from sublayer.study.report.number_format import format_duration
from sublayer.study.results import Results
from sublayer.study.scoring import WHOLE_TEST, Scoring
from sublayer.study.statistics import critical_t

FEW_SEEDS = 5
"""Fewer seeds than these, the default, are called few."""


def list_caveats(
    looks: Sequence[int],
    data: Mapping[str, Data],
    *,
    n_seeds: int,
    n_comparisons: int,
    metric: Metric,
    against: Mapping[str, str] | None = None,
    elsewhere: Sequence[str] = (),
    jobs: Sequence[int] = (),
    scoring: Scoring = WHOLE_TEST,
    chosen: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return what weakens a comparison, a sentence or two each.

    ``looks`` are the numbers of seeds of its reports, in order; ``data`` is each arm's by name, the
    baseline's first, or nothing where the texts are not at hand;
    ``n_comparisons`` is what intervals are corrected for; ``metric`` decides; ``against`` has the
    arms that have another baseline than the first, or none, which is themselves; ``elsewhere`` are
    arms that the metric scored on other items than their baseline; ``jobs`` are numbers of
    runs that were made at a time, other than one; ``scoring`` is what was scored, and ``chosen`` is
    what was chosen by the validation split. Where there is no interval,
    none has a caveat: of one seed (see ``explain_one_seed``), or while no two arms are compared.
    """
    notes = []
    if n_seeds > 1 and n_comparisons:
        notes += _of_intervals(looks, n_seeds, n_comparisons)
    if scoring.split == "valid" and chosen:
        notes.append(
            f"Scored on the validation split, which also chose {' and '.join(chosen)}: values are "
            "better than those of a text that had no part in it."
        )
    notes += _of_texts(data, metric, scoring, against or {})
    if elsewhere and metric.basis == "items":
        notes.append(
            f"{', '.join(elsewhere)}: scored on other targets than the baseline, so that "
            f"{metric.label} do not compare, and no verdict on them means anything."
        )
    if jobs:
        notes.append(
            f"Up to {max(jobs)} runs were trained at a time: seconds and tokens/s are those of "
            "runs that share the machine, and do not compare with those of a run alone."
        )
    return tuple(notes)


def _of_intervals(looks: Sequence[int], n_seeds: int, n_comparisons: int) -> list[str]:
    notes = []
    if n_seeds < FEW_SEEDS:
        notes.append(_few_seeds(n_seeds, n_comparisons))
    if len(looks) > 1:
        notes.append(
            f"This study was reported with {', '.join(map(str, looks))} seeds in turn. The "
            "intervals assume that the number of seeds was chosen beforehand: a verdict that came "
            "with added seeds is less sure than it says."
        )
    return notes


def _of_texts(
    data: Mapping[str, Data], metric: Metric, scoring: Scoring, against: Mapping[str, str]
) -> list[str]:
    """Note what other texts, other vocabularies and lossy ones do to values."""
    notes: list[str] = []
    if not data:
        return notes
    small = describe_small_test(next(iter(data.values()))) if scoring.split == "test" else None
    if small:
        notes.append(f"{small[0].upper()}{small[1:]}.")
    other_text = _others(data, scoring.split, against)
    if other_text:
        notes.append(
            f"{other_text}: scored on another text than the baseline. data.{scoring.split}_path "
            "gives all arms one."
        )
    foreign = _others(data, "tokenizer", against)
    texts = {name: scoring.split_of(each) for name, each in data.items()}
    if foreign and any(text.read_pairs is not None for text in texts.values()):
        notes.append(
            f"{foreign}: another vocabulary than the baseline's, so that nats per token do not "
            "compare."
        )
    elif foreign and any(text.sentence_starts is not None for text in texts.values()):
        notes.append(
            f"{foreign}: another vocabulary than the baseline's. Its masked tokens are other ones, "
            "so that accuracies and nats of masked tokens do not compare."
        )
    lossy = [name for name, text in texts.items() if not text.store.is_lossless]
    if lossy and metric.basis == "bytes":
        notes.append(
            f"The tokenizer of {', '.join(lossy)} does not keep every byte of the text: bits per "
            "byte leave out what it loses."
        )
    return notes


def explain_one_seed(results: Results, looks: Sequence[int] = ()) -> str:
    """Return why one seed gives no verdict, and what a second costs, in a few sentences.

    ``looks`` are the numbers of seeds of all reports so far: what was trained for them is there.
    """
    text = (
        "One seed gives values and no verdict: how much another seed would change them is not "
        f"known. {_remedy(results, max(looks, default=1))}"
    )
    if any(arm.tuned for arm in results.arms):
        text += " What was tuned was chosen on the validation split by the runs that are reported."
    return text


def _remedy(results: Results, n_trained: int) -> str:
    if n_trained > 1:
        return f"{n_trained} seeds were trained: --seeds {n_trained} gives an interval."
    n_arms = len(results.arms)
    seconds = [arm.costs.seconds for arm in results.arms if arm.costs.seconds is not None]
    cost = f"{n_arms} runs"
    if len(seconds) == n_arms:
        cost += f" of {format_duration(sum(seconds))} together"
    return f"A second gives an interval: --seeds 2 continues from these runs with {cost}."


def _few_seeds(n_seeds: int, n_comparisons: int) -> str:
    compared = "one comparison" if n_comparisons == 1 else f"{n_comparisons} comparisons"
    return (
        f"{n_seeds} seeds are few: with {compared} an interval reaches "
        f"{critical_t(n_seeds, n_comparisons):.1f} "
        'standard errors to either side. "undecided" does not say that arms are equal: '
        "a difference below the "
        "detectable one was likely to be missed."
    )


def _others(data: Mapping[str, Data], what: str, against: Mapping[str, str]) -> str:
    """Name the arms in whose data something is another than in that of their baseline."""
    first, *_ = data
    names = []
    for name, each in data.items():
        baseline = data[against.get(name, first)]
        if each.checksums[what] != baseline.checksums[what]:
            names.append(name)
    return ", ".join(names)
