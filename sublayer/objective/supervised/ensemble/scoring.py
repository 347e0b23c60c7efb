"""What the runs of an ensemble are scored on, and what each of them answers to it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sublayer.data.tasks.task_split import TaskSplit
from sublayer.errors import DataError
from sublayer.objective.evaluation import Evaluation
from sublayer.objective.supervised.answering import model_rule
from sublayer.objective.supervised.asked_spec import asked_spec
from sublayer.objective.supervised.ensemble.answers import MemberAnswers, answers_of
from sublayer.objective.supervised.ensemble.heads import check_heads
from sublayer.objective.supervised.ensemble.members import check_members
from sublayer.objective.supervised.same_rows import check_same_rows
from sublayer.objective.supervised.scoring import Scoring, asked_scoring, held_out
from sublayer.system.stages import stage
from sublayer.tasks.spec import TaskSpec


@dataclass(frozen=True)
class Run:
    """A run, and the examples as it reads them."""

    asked: Evaluation
    spec: TaskSpec
    scoring: Scoring
    held_out: TaskSplit | None
    """What it held out of train; None where no members are chosen."""

    def answer(self, split: TaskSplit) -> MemberAnswers:
        """Answer a split of its own."""
        asked = self.asked
        rule = replace(model_rule(asked.model, split), n_rows=asked.batch)
        with stage(f"answering by {asked.run}"):
            progress = asked.progress("answered", "batches")
            return answers_of(asked.model, split, rule, self.spec, progress)


def prepare_runs(requests: Sequence[Evaluation], *, chooses: bool) -> list[Run]:
    """Read what each run is scored on, and with ``chooses`` what it held out.

    Raises ConfigError where runs do not answer the same, or not so that it is averaged, and
    DataError where they are not scored on the same rows.
    """
    specs = [asked_spec(_fitting(each)) for each in requests]
    names = [str(each.run) for each in requests]
    check_members(names, specs)
    check_heads(names, [each.model for each in requests])
    runs = []
    for asked, spec in zip(requests, specs, strict=True):
        held = held_out(asked) if chooses else None
        runs.append(Run(asked, spec, asked_scoring(asked), held))
    first = runs[0]
    for run in runs[1:]:
        _check_same(first, run, first.scoring.split, run.scoring.split, "is scored on")
        if first.held_out is not None and run.held_out is not None:
            _check_same(first, run, first.held_out, run.held_out, "held out")
    return runs


def _fitting(asked: Evaluation) -> Evaluation:
    """Leave out how text is answered where a model reads no text."""
    if asked.model.task.format == "text":
        return asked
    options = {name: value for name, value in asked.options.items() if name != "answer"}
    return replace(asked, options=options)


def _check_same(first: Run, other: Run, mine: TaskSplit, theirs: TaskSplit, what: str) -> None:
    sets, other_sets = map(_sets, (mine, theirs))
    if sets != other_sets:
        raise DataError(
            f"{other.asked.run} {what} {', '.join(other_sets)}, and {first.asked.run} "
            f"{', '.join(sets)}: take models of the same data, in the same order"
        )
    for part, own in zip(mine.parts, theirs.parts, strict=True):
        check_same_rows(first.asked.run, part, other.asked.run, own, what)


def _sets(split: TaskSplit) -> list[str]:
    return [f"{part.task.name} {part.published}" for part in split.parts]
