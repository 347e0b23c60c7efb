"""What each arm chose of the values that were tried, what others scored, and the grid's edges."""

from collections.abc import Iterator, Mapping, Sequence

from sublayer.objective.metric import Metric
from sublayer.study.arms import Arm
from sublayer.study.execution.arm_runs import ArmRuns
from sublayer.study.tuning import Trial


def chosen_by_validation(arms: Sequence[Arm], tune: Sequence[str]) -> list[str]:
    """Return what the validation split chooses in runs of arms; ``tune`` is what was tuned."""
    chosen = []
    # Where the last checkpoint is kept nothing chooses one.
    if {str(arm.loaded.recipe.train.best_by) for arm in arms} != {"last"}:
        chosen.append("the checkpoint of each run")
    if tune:
        chosen.append(f"each arm's {', '.join(text.partition('=')[0] for text in tune)}")
    return chosen


def explain_choices(
    arms: Sequence[ArmRuns], trials: Sequence[Trial], n_tuning: int = 1
) -> tuple[str, ...]:
    """Say of each arm what it chose, what others scored, and where the best lies at an edge.

    ``n_tuning`` are the seeds of each trial. Empty where nothing was tuned.
    """
    over = "" if n_tuning == 1 else f", the mean over {n_tuning} seeds"
    notes = []
    for runs in arms:
        if not runs.losses:
            continue
        metric = runs.chosen_by
        what = "loss" if metric is None else metric.label
        scored = [f"{name} {_scored(loss, metric)}" for name, loss in runs.losses.items()]
        text = (
            f"{runs.matched_arm.arm.name} chose {runs.trial.name} by its validation {what}{over}: "
            f"{', '.join(scored)}."
        )
        notes.append(" ".join([text, *edges(runs.trial, trials, runs.losses)]))
    return tuple(notes)


def explain_unknown_choice(arms: Sequence[ArmRuns], metric: Metric) -> tuple[str, ...]:
    """Say that intervals leave other tunings out, where trials were chosen by another metric."""
    for runs in arms:
        if runs.losses and not runs.is_chosen_by(metric):
            by = "loss" if runs.chosen_by is None else runs.chosen_by.label
            return (
                f"Trials were chosen by their validation {by}, and the study is decided by "
                f"{metric.label}: what another tuning would choose is not in the intervals.",
            )
    return ()


def _scored(loss: float | None, metric: Metric | None) -> str:
    if loss is None:
        return "failed"
    if metric is None:
        return f"{loss:.4f}"
    value = loss if metric.is_lower_better else -loss
    return f"{metric.factor * value:z.{metric.decimals + 1}f}"


def edges(
    chosen: Trial, trials: Sequence[Trial], scores: Mapping[str, float | None]
) -> Iterator[str]:
    """Say which trials scored what the chosen did, and which of its numbers lie at an edge.

    ``scores`` are by trial. A number that others share the best score with is at no edge.
    """
    best = scores.get(chosen.name)
    alike = [trial for trial in trials if best is not None and scores.get(trial.name) == best]
    if len(alike) > 1:
        names = " and ".join(trial.name for trial in alike)
        yield f"{names} scored alike: the lower validation loss decided."
    for field, value in chosen.settings.items():
        tried = [trial.settings[field] for trial in trials]
        if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in tried):
            continue
        edges = {min(tried): "lowest", max(tried): "highest"}
        is_alone = all(trial.settings[field] == value for trial in alike)
        if value in edges and is_alone:
            beyond = "lower" if value == min(tried) else "higher"
            yield (
                f"{field} = {value:g} is the {edges[value]} that was tried: a better one may lie "
                f"beyond the edge of the grid, so try {beyond} ones."
            )
