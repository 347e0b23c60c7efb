"""The results of a chain with their notes: of runs that were just made, or of a folder's."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sublayer.study.budget.match import Rule
from sublayer.study.chain.baselines import read_baselines
from sublayer.study.chain.choices import explain_collapses, explain_stage_choices
from sublayer.study.chain.collect import Runs, collect_chain
from sublayer.study.chain.columns import Column, list_columns, primary_column
from sublayer.study.chain.kept import Kept
from sublayer.study.chain.stages import explain_nesting, is_within
from sublayer.study.definition import Study
from sublayer.study.execution.one_run import Outcome
from sublayer.study.findings.machines import list_differing_machines
from sublayer.study.report.budget_words import time_caveats
from sublayer.study.report.notes import list_caveats
from sublayer.study.results import Results
from sublayer.study.sealed_runs import sealing_of


def find_columns(study: Study, kept: Kept) -> tuple[list[Column], Column]:
    """Return the columns of a chain's scores, and the one that decides.

    Raises ConfigError as ``list_columns`` and ``primary_column`` do.
    """
    columns = list_columns(study.name, kept.chain, kept.parts, kept.kinds)
    return columns, primary_column(study.name, columns, study.metric)


def chain_results(
    study: Study,
    kept: Kept,
    runs: Runs,
    folder: Path,
    *,
    rule: Rule,
    command: str,
    layer_notes: Sequence[str],
    looks: Sequence[int],
    jobs: Sequence[int],
    clusters: Sequence[str],
    is_unfinished: bool = False,
) -> Results:
    """Build the results of a chain; ``study`` has the recipes of its arms.

    ``looks`` are the numbers of seeds of its reports, in order, ``jobs`` those of runs that were
    made at a time, ``clusters`` the kinds of clusters that made runs. Raises ConfigError where what
    the baselines scored is damaged.
    """
    columns, primary = find_columns(study, kept)
    results = collect_chain(
        study,
        rule,
        kept.n_seeds,
        kept.arms,
        runs,
        columns,
        primary,
        read_baselines(folder, kept.baselines, columns),
        command=command,
        looks=() if is_within(kept.chain, kept.n_seeds) else looks,
        is_unfinished=is_unfinished,
    )
    notes = [explain_nesting(kept.chain, kept.n_seeds), *study.caveats, *layer_notes]
    notes += kept.cuts.values()
    notes += explain_stage_choices(runs, kept.trials, kept.tuning_number)
    notes += explain_collapses(results)
    notes += time_caveats(results)
    notes += list_caveats(
        (),
        metric=results.metric,
        jobs=jobs,
        clusters=clusters,
        machines=list_differing_machines(_outcomes(runs)),
    )
    return replace(results, notes=tuple(notes), sealing=sealing_of(folder, kept.stage_texts))


def _outcomes(runs: Runs) -> dict[str, list[Outcome]]:
    """Return the outcomes of all seeds by arm and stage."""
    return {
        f"{arm}, {name}": [outcome for seed in own.outcomes.values() for outcome in seed]
        for (arm, name), own in runs.items()
    }
