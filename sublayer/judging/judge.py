"""Understood records judged: direction settled, runs put together, a verdict that shows itself."""

from sublayer.judging.layout import Understood, with_direction
from sublayer.judging.runs import Rules, assemble
from sublayer.judging.verdict import Question, RunsVerdict, judge_runs
from sublayer.judging.words import notebook_html, text_of


class JudgedRuns(RunsVerdict):
    """A verdict as a text, and as a notebook shows it."""

    def __str__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        return notebook_html(self)


def judge_understood(
    understood: Understood, rules: Rules, question: Question, lower_is_better: bool | None
) -> JudgedRuns:
    """Judge what sources hold; raise the errors of each step, before anything is judged."""
    directed = with_direction(understood, lower_is_better)
    assert directed.is_lower_better is not None, "the direction is settled"
    direction = "lower" if directed.is_lower_better else "higher"
    found = judge_runs(
        assemble(directed.records, rules),
        question,
        metric=directed.metric,
        is_lower_better=directed.is_lower_better,
        said=(*directed.said, f"{direction} is better, {directed.why}"),
    )
    return JudgedRuns(**vars(found))
