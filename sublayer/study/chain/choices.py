"""What each arm chose in stages of tasks, of the values that were tried, and the grid's edges."""

from collections.abc import Mapping, Sequence

from sublayer.study.chain.collect import Runs
from sublayer.study.report.choices import edges
from sublayer.study.tuning import Trial
from sublayer.tasks.metrics.points import points


def explain_stage_choices(runs: Runs, trials: Mapping[str, Sequence[Trial]]) -> tuple[str, ...]:
    """Say of each arm and stage what it chose, what others scored, and where that is an edge.

    Empty where nothing was tuned.
    """
    notes = []
    for (arm, stage), own in runs.items():
        if not own.tried:
            continue
        scored = [
            f"{name} {'failed' if score is None else points(score)}"
            for name, score in own.tried.items()
        ]
        text = (
            f"{arm}, {stage}: chose {own.trial.name} by the score on what is held out of the "
            f"training examples, with seed 0: {', '.join(scored)}."
        )
        notes.append(" ".join([text, *edges(own.trial, trials[stage])]))
    return tuple(notes)
