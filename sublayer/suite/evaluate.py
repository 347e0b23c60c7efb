"""A suite evaluated: every model by every measure, checked before anything is computed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from sublayer.counts import count
from sublayer.errors import Interrupted, SublayerError, TrainingError, one_line
from sublayer.objective.metric import Metric
from sublayer.reporting.scorecard import card_json
from sublayer.study.scorecard import Cell, Row, Scorecard
from sublayer.suite.file import SuiteFile, read_suite
from sublayer.suite.measures import (
    CHANCE,
    COMPRESSED,
    COPIED,
    MAJORITY,
    REFERENCE,
    SPEED,
    WORDS,
    BitsPerByte,
    Bleu,
    Candidate,
    Measure,
    Parameters,
    ProbeMeasure,
    Scores,
    Speed,
    find_candidates,
    scores_from_json,
)
from sublayer.suite.tasks import TaskMeasure
from sublayer.system.machine import describe_machine
from sublayer.system.memory import lacks_memory
from sublayer.system.stages import stage
from sublayer.training.processes.world import World, join_world

_BASELINES = {
    MAJORITY: "the most frequent label of the training rows, or the mean of their numbers",
    WORDS: "a linear model of words, trained on the same rows",
    CHANCE: "what guessing scores",
    REFERENCE: "what a model of the probes' time scored that was trained on the task",
    COMPRESSED: "the text compressed by xz",
    COPIED: "the source as its own translation",
}
"""Rows below the models, in their order, with their descriptions."""
_NOTHING = Scores((), {})
_LONGEST = 200
"""Characters of an error that is no user's, in a reason."""


@dataclass(frozen=True)
class Work:
    """The work of a suite, checked: each model by each measure, or why not."""

    suite: SuiteFile
    candidates: Sequence[Candidate]
    measures: Sequence[Measure]
    refusals: Mapping[tuple[int, int], str]
    """By the places of model and measure; empty where the measure applies."""


@dataclass(frozen=True)
class Evaluated:
    """The scores of each model by each measure, in the order of both."""

    work: Work
    scores: Sequence[Sequence[Scores]]
    machine: Mapping[str, Any]

    def scorecard(self) -> Scorecard:
        """Return the scorecard: a row a model, then baselines."""
        rows = []
        columns = self._columns()
        baselines: dict[str, dict[str, Cell]] = {name: {} for name in _BASELINES}
        for candidate, by_measure in zip(self.work.candidates, self.scores, strict=True):
            cells: dict[str, Cell] = {}
            reasons: dict[str, str] = {}
            for scores, expected in zip(by_measure, columns, strict=True):
                cells.update(scores.cells)
                for column in expected:
                    if column.name not in scores.cells:
                        reason = scores.reason or "it was not scored on this part"
                        reasons[column.name] = reason
                for name, by_column in scores.others.items():
                    for column_name, cell in by_column.items():
                        baselines[name].setdefault(column_name, cell)
            rows.append(Row(candidate.name, "model", cells, reasons))
        for name, cells in baselines.items():
            if cells:
                is_published = name == REFERENCE
                kind: Literal["published", "baseline"] = "published" if is_published else "baseline"
                rows.append(Row(name, kind, cells, description=_BASELINES[name]))
        notes = self._notes()
        if self.work.suite.speed:
            machine = self.machine
            threads = f"{machine['processor']}, {count(machine['threads'], 'thread')}"
            where = machine.get("gpu") or threads
            notes += [SPEED, f"tokens/s measured on {where}, PyTorch {machine['torch']}"]
        return Scorecard([column for of_measure in columns for column in of_measure], rows, notes)

    def to_json(self) -> dict[str, Any]:
        """Return the scorecard as JSON."""
        described = card_json(self.scorecard())
        # The rows of models are the first.
        for row, candidate in zip(described["rows"], self.work.candidates, strict=False):
            row["run"] = str(candidate.path)
            row["model"] = candidate.kind
        return {
            "title": self.work.suite.title,
            **described,
            "notes": self._notes(),
            "machine": dict(self.machine),
        }

    def _columns(self) -> list[list[Metric]]:
        """List the columns of each measure: those of the models, or else the expected ones."""
        columns = []
        for measure, by_model in zip(
            self.work.measures, zip(*self.scores, strict=True), strict=True
        ):
            scored = {
                column.name: column
                for scores in by_model
                if scores.cells
                for column in scores.columns
            }
            columns.append(list(scored.values()) or list(measure.columns))
        return columns

    def _notes(self) -> list[str]:
        """List the notes of all models, and where a baseline of one is another's."""
        notes: dict[str, None] = {}
        first: dict[tuple[str, str], tuple[str, Cell]] = {}
        for candidate, by_measure in zip(self.work.candidates, self.scores, strict=True):
            for scores in by_measure:
                notes.update(dict.fromkeys(scores.notes))
                labels = {column.name: column.label for column in scores.columns}
                for name, by_column in scores.others.items():
                    for column, cell in by_column.items():
                        key = name, column
                        whose, known = first.setdefault(key, (candidate.name, cell))
                        if known.mean != cell.mean:
                            note = (
                                f"{labels[column]}: {name} is that of the rows of {whose}; "
                                f"{candidate.name} was trained or scored on other rows, of which "
                                "it is another"
                            )
                            notes[note] = None
        return list(notes)


def check_suite(path: Path, runs: Sequence[Path]) -> Work:
    """Read a suite's file, its files and the models' descriptions; nothing is computed.

    Raises ConfigError, DataError and CheckpointError for the user's mistakes.
    """
    suite = read_suite(path)
    with stage("finding the models"):
        candidates = find_candidates(runs)
    with stage("finding what they are scored on"):
        measures = _measures(suite)
    refusals = {}
    for row, candidate in enumerate(candidates):
        for index, measure in enumerate(measures):
            refusals[row, index] = measure.refusal(candidate)
    return Work(suite, candidates, measures, refusals)


def _measures(suite: SuiteFile) -> list[Measure]:
    """List the measures, in the order of the scorecard."""
    names = [name for group in suite.tasks for name in group.names]
    measures: list[Measure] = []
    if suite.parameters:
        measures.append(Parameters())
    if suite.speed:
        measures.append(Speed())
    measures += [BitsPerByte(text) for text in suite.texts]
    measures += [TaskMeasure(name, group, names) for group in suite.tasks for name in group.names]
    measures += [ProbeMeasure(name, group) for group in suite.probes for name in group.names]
    measures += [Bleu(pairs) for pairs in suite.pairs]
    return measures


def evaluate_suite(work: Work, device: torch.device) -> Evaluated:
    """Measure all models.

    Processes that ``torchrun`` started fine-tune together and divide the rest among them, except
    timed measures; all return the same. A failure of one model is a reason beside the others'
    scores. Raises Interrupted.
    """
    world = join_world(device)
    n_threads = torch.get_num_threads()
    scores: dict[tuple[int, int], Scores] = {}
    divided: list[tuple[int, int]] = []
    timed: list[tuple[int, int]] = []
    for (row, index), reason in work.refusals.items():
        measure = work.measures[index]
        if reason:
            scores[row, index] = Scores(measure.columns, {}, reason=reason)
        elif isinstance(measure, TaskMeasure) and measure.trains(work.candidates[row]):
            together = world.size > 1
            scores[row, index] = _measured(work, (row, index), device, together=together)
        else:
            (timed if measure.is_timed else divided).append((row, index))
    # A run computes with the threads of its recipe.
    torch.set_num_threads(n_threads)
    mine = [_measured(work, divided[number], device) for number in world.own(len(divided))]
    scores.update(zip(divided, _gathered(mine, len(divided), world), strict=True))
    for pair in timed:
        # The others wait.
        first = [_measured(work, pair, device)] if world.is_main else [_NOTHING]
        scores[pair] = _gathered(first, world.size, world)[0]
    rows = [
        [scores[row, index] for index in range(len(work.measures))]
        for row in range(len(work.candidates))
    ]
    machine = {**describe_machine(device), "threads": n_threads}
    return Evaluated(work, rows, machine)


def _measured(
    work: Work, pair: tuple[int, int], device: torch.device, *, together: bool = False
) -> Scores:
    """Measure one model by one measure; what fails is a reason.

    What breaks while several processes train ``together`` ends them all: others would wait.
    """
    row, index = pair
    candidate, measure = work.candidates[row], work.measures[index]
    try:
        with stage(f"{candidate.name}: {measure.title}"):
            return measure.score(candidate, device)
    except Interrupted:
        raise Interrupted(
            f"interrupted while {measure.title} of {candidate.name}, and what was trained is "
            "saved; the same command resumes"
        ) from None
    except SublayerError as error:
        how = "training failed: " if isinstance(error, TrainingError) else ""
        return Scores(measure.columns, {}, reason=f"{how}{error}")
    except (MemoryError, RuntimeError) as error:
        if together:
            raise
        if lacks_memory(error):
            return Scores(measure.columns, {}, reason="this machine has too little memory for it")
        # What others scored, perhaps in hours, is not lost by it.
        return Scores(measure.columns, {}, reason=f"it failed: {one_line(str(error))[:_LONGEST]}")


def _gathered(mine: Sequence[Scores], n: int, world: World) -> list[Scores]:
    """Gather the scores of all processes, as the bytes of JSON, which are numbers."""
    rows = []
    for scores in mine:
        text = json.dumps(scores.to_json()).encode()
        rows.append(np.frombuffer(text, dtype=np.uint8).astype(np.float64))
    gathered = world.gather(rows, n)
    return [scores_from_json(json.loads(row.astype(np.uint8).tobytes())) for row in gathered]
