"""The notes of a report: what its author says, what tuning chose, what its numbers do not show."""

from collections.abc import Sequence

from sublayer.study.definition import Study
from sublayer.study.evidence import scored_elsewhere
from sublayer.study.execution.arm_runs import ArmRuns
from sublayer.study.findings.machines import list_differing_machines
from sublayer.study.items.file_header import RunItems
from sublayer.study.report.budget_words import time_caveats
from sublayer.study.report.caveats import explain_one_seed, list_caveats
from sublayer.study.report.choices import (
    chosen_by_validation,
    explain_choices,
    explain_unknown_choice,
)
from sublayer.study.results import Results
from sublayer.study.tuning import Trial


def list_notes(
    results: Results,
    study: Study,
    runs: Sequence[ArmRuns],
    items: Sequence[RunItems],
    *,
    tune: Sequence[str],
    trials: Sequence[Trial],
    n_tuning: int,
    layers: Sequence[str],
    texts: Sequence[str],
    jobs: Sequence[int],
    clusters: Sequence[str],
    looks: Sequence[int],
) -> tuple[str, ...]:
    """Return what a reader should know of a comparison of ``runs``, in the order that it is shown.

    ``items`` are those of their tests. ``tune`` is what was tuned, by ``trials`` of ``n_tuning``
    seeds each; ``layers`` and ``texts`` are the notes on the arms' settings and on their text;
    ``jobs`` and ``clusters`` are as ``list_caveats`` has them, and ``looks`` as
    ``explain_one_seed`` does.
    """
    notes = [*study.caveats, *layers]
    if not results.has_verdicts:
        notes.append(explain_one_seed(results, looks))
    notes += explain_choices(runs, trials, n_tuning)
    if results.has_verdicts:
        notes += explain_unknown_choice(runs, results.metric)
    notes += time_caveats(results)
    notes += list_caveats(
        texts,
        metric=results.metric,
        elsewhere=scored_elsewhere(items, results.baseline, results.metric, study.against),
        jobs=jobs,
        clusters=clusters,
        machines=list_differing_machines(
            {each.matched_arm.arm.name: each.outcomes.values() for each in runs}
        ),
        scoring=study.scoring,
        chosen=chosen_by_validation(study.arms, tune),
    )
    return tuple(notes)
