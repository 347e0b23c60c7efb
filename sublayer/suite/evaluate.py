"""A suite evaluated: every model by every measure, checked before anything is computed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sublayer.errors import Interrupted, SublayerError, TrainingError, one_line
from sublayer.suite.answering import TaskMeasure
from sublayer.suite.candidate import Candidate, find_candidates
from sublayer.suite.file import SuiteFile, read_suite
from sublayer.suite.found import Found, from_json
from sublayer.suite.measure import Measure
from sublayer.suite.pairs import Bleu
from sublayer.suite.probing import ProbeMeasure
from sublayer.suite.sizes import Parameters
from sublayer.suite.speed import Speed
from sublayer.suite.texts import BitsPerByte
from sublayer.system.machine import describe_machine
from sublayer.system.memory import lacks_memory
from sublayer.system.stages import stage
from sublayer.training.processes.joining import join_world
from sublayer.training.processes.world import World


@dataclass(frozen=True)
class Work:
    """What a suite asks, checked: each model by each measure, or why not."""

    suite: SuiteFile
    candidates: Sequence[Candidate]
    measures: Sequence[Measure]
    refusals: Mapping[tuple[int, int], str]
    """By the places of model and measure; empty texts are of what is measured."""


@dataclass(frozen=True)
class Evaluated:
    """What was found, of each model by each measure, in the order of both."""

    work: Work
    found: Sequence[Sequence[Found]]
    machine: Mapping[str, Any]


def check_suite(path: Path, runs: Sequence[Path]) -> Work:
    """Read a suite's file, its files and the models' descriptions; nothing is computed.

    Raises ConfigError, DataError and CheckpointError for what the user has to mend.
    """
    suite = read_suite(path)
    with stage("finding the models"):
        candidates = find_candidates(runs)
    with stage("finding what they are scored on"):
        measures = _measures(suite)
    refusals = {}
    for row, candidate in enumerate(candidates):
        for place, measure in enumerate(measures):
            refusals[row, place] = measure.refusal(candidate)
    return Work(suite, candidates, measures, refusals)


def _measures(suite: SuiteFile) -> list[Measure]:
    """List what is measured, in the order of the scorecard."""
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

    Processes that ``torchrun`` started fine-tune together and divide the rest among them, but for
    what is timed; all return the same. What fails for one model is a reason beside the others'
    scores. Raises Interrupted.
    """
    world = join_world(device)
    n_threads = torch.get_num_threads()
    found: dict[tuple[int, int], Found] = {}
    divided: list[tuple[int, int]] = []
    timed: list[tuple[int, int]] = []
    for (row, place), reason in work.refusals.items():
        measure = work.measures[place]
        if reason:
            found[row, place] = Found(measure.columns, {}, reason=reason)
        elif isinstance(measure, TaskMeasure) and measure.trains(work.candidates[row]):
            together = world.size > 1
            found[row, place] = _measured(work, (row, place), device, together=together)
        else:
            (timed if measure.is_timed else divided).append((row, place))
    # A run computes with the threads of its recipe.
    torch.set_num_threads(n_threads)
    own = [_measured(work, divided[index], device) for index in world.own(len(divided))]
    found.update(zip(divided, _gathered(own, len(divided), world), strict=True))
    for pair in timed:
        # The others wait.
        first = [_measured(work, pair, device)] if world.is_main else [_NOTHING]
        found[pair] = _gathered(first, world.size, world)[0]
    rows = [
        [found[row, place] for place in range(len(work.measures))]
        for row in range(len(work.candidates))
    ]
    machine = {**describe_machine(device), "threads": n_threads}
    return Evaluated(work, rows, machine)


_NOTHING = Found((), {})
_LONGEST = 200
"""Characters of an error that is no user's, in a reason."""


def _measured(
    work: Work, pair: tuple[int, int], device: torch.device, *, together: bool = False
) -> Found:
    """Measure one model by one measure; what fails is a reason.

    What breaks while several processes train ``together`` ends them all: others would wait.
    """
    row, place = pair
    candidate, measure = work.candidates[row], work.measures[place]
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
        return Found(measure.columns, {}, reason=f"{how}{error}")
    except (MemoryError, RuntimeError) as error:
        if together:
            raise
        if lacks_memory(error):
            return Found(measure.columns, {}, reason="this machine has too little memory for it")
        # What others scored, perhaps in hours, is not lost by it.
        return Found(measure.columns, {}, reason=f"it failed: {one_line(str(error))[:_LONGEST]}")


def _gathered(own: Sequence[Found], n: int, world: World) -> list[Found]:
    """Gather what all processes found, as the bytes of JSON, which are numbers."""
    rows = []
    for each in own:
        text = json.dumps(each.to_json()).encode()
        rows.append(np.frombuffer(text, dtype=np.uint8).astype(np.float64))
    found = []
    for row in world.gather(rows, n):
        found.append(from_json(json.loads(row.astype(np.uint8).tobytes())))
    return found
