"""What a reader should know of stages of tasks: what each arm chose there, and what collapsed."""

from collections.abc import Mapping, Sequence

from sublayer.objective.supervised.collapse import REMEDY
from sublayer.study.chain.collect import Runs
from sublayer.study.report.notes import edges
from sublayer.study.results import Results
from sublayer.study.tuning import Trial
from sublayer.tasks.metrics.points import points


def explain_stage_choices(
    runs: Runs, trials: Mapping[str, Sequence[Trial]], tuning_number: int
) -> tuple[str, ...]:
    """Say of each arm and stage what it chose, what others scored, and where that is an edge.

    ``tuning_number`` is the seed of the trials. Empty where nothing was tuned.
    """
    notes = []
    for (arm, stage), own in runs.items():
        if not own.tried:
            continue
        scored = [
            f"{name}: {'failed' if score is None else points(score)}"
            for name, score in own.tried.items()
        ]
        text = (
            f"{arm}, {stage}: {own.trial.name} chosen by the score on held-out training examples "
            f"(seed {tuning_number}); {', '.join(scored)}."
        )
        notes.append(" ".join([text, *edges(own.trial, trials[stage], own.tried)]))
    return tuple(notes)


def explain_collapses(results: Results) -> tuple[str, ...]:
    """Say which arms' runs answer nothing, in how many of them: what they score is no skill."""
    card = results.scorecard
    if card is None:
        return ()
    said = []
    for row in card.rows:
        for column in card.columns:
            cell = row.cells.get(column.name)
            if cell is not None and cell.n_collapsed:
                said.append(f"{cell.n_collapsed} of {cell.n_runs} of {row.name} on {column.label}")
    if not said:
        return ()
    return (
        f"Collapsed runs, which give the same answer to every example: {'; '.join(said)}. A "
        f"difference from such a mean is no difference in skill. What helps: {REMEDY}.",
    )
