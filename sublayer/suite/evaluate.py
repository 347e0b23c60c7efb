"""Evaluation of a suite: every model by every measure, checked before any computation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from sublayer.errors import Interrupted, SublayerError, TrainingError, one_line
from sublayer.evaluation.items import Metric
from sublayer.numbers import count
from sublayer.reporting.tables import card_json
from sublayer.study.results import Cell, Scorecard, ScoreRow
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
    Measured,
    ParameterCount,
    ProbeMeasure,
    Speed,
    TaskMeasure,
    find_candidates,
)
from sublayer.system.machine import describe_machine, lacks_memory
from sublayer.system.terminal import stage
from sublayer.training.world import join_world

_BASELINES = {
    MAJORITY: "the most frequent label of the training rows, or the mean of their numbers",
    WORDS: "a linear model of words, trained on the same rows",
    CHANCE: "the score of guessing",
    REFERENCE: "the score of a model of the probes' time that was trained on the task",
    COMPRESSED: "the text compressed by xz",
    COPIED: "the source as its own translation",
}
"""Rows below the models, in order, with their descriptions."""
_NOTHING = Measured((), {})
_LONGEST = 200
"""Maximum number of characters of an internal error in a reason."""


@dataclass(frozen=True)
class Work:
    """Checked work of a suite: each model by each measure, and the results."""

    suite: SuiteFile
    candidates: Sequence[Candidate]
    measures: Sequence[Measure]
    refusals: Mapping[tuple[int, int], str]
    """Refusals by the indices of model and measure; empty if the measure applies."""
    scores: Mapping[tuple[int, int], Measured] = field(default_factory=dict)
    """Results by the same indices."""
    machine: Mapping[str, Any] = field(default_factory=dict)

    def scorecard(self) -> Scorecard:
        """Return the scorecard: a row per model, then baselines."""
        columns = self._columns()
        models: list[tuple[dict[str, Cell], dict[str, str]]] = [({}, {}) for _ in self.candidates]
        baselines: dict[str, dict[str, Cell]] = {name: {} for name in _BASELINES}
        for (row, index), scores in self.scores.items():
            cells, reasons = models[row]
            cells.update(scores.cells)
            for column in columns[index]:
                if column.name not in scores.cells:
                    reasons[column.name] = scores.reason or "the model was not scored on this part"
            for name, by_column in scores.others.items():
                for column_name, cell in by_column.items():
                    baselines[name].setdefault(column_name, cell)
        rows = [
            ScoreRow(candidate.name, "model", *result)
            for candidate, result in zip(self.candidates, models, strict=True)
        ]
        for name, cells in baselines.items():
            if cells:
                kind: Literal["published", "baseline"] = "baseline"
                if name == REFERENCE:
                    kind = "published"
                rows.append(ScoreRow(name, kind, cells, description=_BASELINES[name]))
        notes = self._notes()
        if self.suite.speed:
            machine = self.machine
            threads = f"{machine['processor']}, {count(machine['threads'], 'thread')}"
            where = machine.get("gpu") or threads
            notes += [SPEED, f"tokens/s measured on {where}, PyTorch {machine['torch']}"]
        return Scorecard([column for of_measure in columns for column in of_measure], rows, notes)

    def to_json(self) -> dict[str, Any]:
        """Return the scorecard as JSON."""
        described = card_json(self.scorecard())
        # The rows of models come first.
        for row, candidate in zip(described["rows"], self.candidates, strict=False):
            row["run"] = str(candidate.path)
            row["model"] = candidate.kind
        notes, machine = self._notes(), dict(self.machine)
        return {"title": self.suite.title, **described, "notes": notes, "machine": machine}

    def _columns(self) -> list[list[Metric]]:
        """List the columns of each measure: the models' columns, or else the expected ones."""
        columns: list[dict[str, Metric]] = [{} for _ in self.measures]
        for (_, index), scores in self.scores.items():
            if scores.cells:
                columns[index] |= {column.name: column for column in scores.columns}
        pairs = zip(self.measures, columns, strict=True)
        return [list(by_name.values()) or list(measure.columns) for measure, by_name in pairs]

    def _notes(self) -> list[str]:
        """List the notes of all models, and of baselines that differ between models."""
        notes: dict[str, None] = {}
        first: dict[tuple[str, str], tuple[str, Cell]] = {}
        for (row, _), scores in self.scores.items():
            model = self.candidates[row].name
            notes |= dict.fromkeys(scores.notes)
            labels = {column.name: column.label for column in scores.columns}
            for name, by_column in scores.others.items():
                for column, cell in by_column.items():
                    whose, first_cell = first.setdefault((name, column), (model, cell))
                    if first_cell.mean != cell.mean:
                        note = (
                            f"{labels[column]}: the baseline {name} is for the rows of {whose}; "
                            f"{model} was trained or scored on other rows, with another baseline"
                        )
                        notes[note] = None
        return list(notes)

    def evaluate(self, device: torch.device) -> "Work":
        """Measure all models; return the work with its scores.

        Processes of ``torchrun`` fine-tune together and divide the rest, except timed measures; all
        return the same. A failure of one model becomes a reason in the scorecard. Raises
        Interrupted.
        """
        world = join_world(device)
        n_threads = torch.get_num_threads()
        scores = {
            (row, index): Measured(self.measures[index].columns, {}, reason=reason)
            for (row, index), reason in self.refusals.items()
        }
        applying = [pair for pair, reason in self.refusals.items() if not reason]
        divided: list[tuple[int, int]] = []
        for row, index in applying:
            measure = self.measures[index]
            if isinstance(measure, TaskMeasure) and measure.trains(self.candidates[row]):
                together = world.size > 1
                scores[row, index] = self._measured((row, index), device, together=together)
            elif not measure.is_timed:
                divided.append((row, index))
        # A run uses the threads of its recipe.
        torch.set_num_threads(n_threads)
        mine = [self._measured(divided[number], device) for number in world.own(len(divided))]
        scores.update(zip(divided, world.gather(mine, len(divided)), strict=True))
        for row, index in applying:
            if self.measures[index].is_timed:
                # The other processes wait.
                first = self._measured((row, index), device) if world.is_main else _NOTHING
                scores[row, index] = world.gather([first], world.size)[0]
        machine = {**describe_machine(device), "threads": n_threads}
        return replace(self, scores=scores, machine=machine)

    def _measured(
        self, pair: tuple[int, int], device: torch.device, *, together: bool = False
    ) -> Measured:
        """Measure one model by one measure; a failure becomes a reason.

        An unexpected error while processes train ``together`` ends them all, since the others would
        wait.
        """
        row, index = pair
        candidate, measure = self.candidates[row], self.measures[index]
        try:
            with stage(f"{candidate.name}: {measure.title}"):
                return measure.score(candidate, device)
        except Interrupted:
            raise Interrupted(
                f"interrupted while {measure.title} of {candidate.name}, and the training so far "
                "is saved; resume with the same command"
            ) from None
        except SublayerError as error:
            how = "training failed: " if isinstance(error, TrainingError) else ""
            return Measured(measure.columns, {}, reason=f"{how}{error}")
        except (MemoryError, RuntimeError) as error:
            if together:
                raise
            if lacks_memory(error):
                return Measured(measure.columns, {}, reason="this machine has too little memory")
            # Other scores, perhaps of hours, are kept.
            return Measured(
                measure.columns, {}, reason=f"failed: {one_line(str(error))[:_LONGEST]}"
            )


def check_suite(path: Path, runs: Sequence[Path]) -> Work:
    """Read a suite's file, its files and the models' descriptions, without any computation.

    Raises ConfigError, DataError and CheckpointError for the user's mistakes.
    """
    suite = read_suite(path)
    with stage("finding the models"):
        candidates = find_candidates(runs)
    with stage("finding the data to score on"):
        names = [name for group in suite.tasks for name in group.names]
        measures: list[Measure] = [ParameterCount()] if suite.parameters else []
        measures += [Speed()] if suite.speed else []
        measures += [BitsPerByte(text) for text in suite.texts]
        measures += [
            TaskMeasure(name, group, names) for group in suite.tasks for name in group.names
        ]
        measures += [ProbeMeasure(name, group) for group in suite.probes for name in group.names]
        measures += [Bleu(pairs) for pairs in suite.pairs]
    refusals = {
        (row, index): measure.refusal(candidate)
        for row, candidate in enumerate(candidates)
        for index, measure in enumerate(measures)
    }
    return Work(suite, candidates, measures, refusals)
