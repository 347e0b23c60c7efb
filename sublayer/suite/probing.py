"""Zero-shot probes of a suite."""

import torch

from sublayer.errors import ConfigError
from sublayer.evaluation.probes.probe import Settings
from sublayer.evaluation.probes.scoring import ProbeScore, ask, check_model, read_probes
from sublayer.evaluation.probes.table import PROBES
from sublayer.study.scorecard import Cell
from sublayer.suite.candidate import Candidate
from sublayer.suite.file import ProbesTable
from sublayer.suite.found import CHANCE, Found, points
from sublayer.suite.local_files import local_folder
from sublayer.suite.measure import Measure

REFERENCE = "reference"
"""The row of what is 1 on the axis of the probes' source."""


class ProbeMeasure(Measure):
    """A probe, which is read once and asked of every model.

    Raises ConfigError for settings that it does not take, DataError where its files are not on this
    machine.
    """

    def __init__(self, name: str, group: ProbesTable) -> None:
        probe = PROBES[name]
        settings = settings_of(group).only(name)
        self._read = read_probes([name], local_folder(probe.tasks, group.data), settings)
        self._column = points(f"probe/{name}", f"{probe.title}, zero-shot")
        self.columns = (self._column,)
        self.title = f"asking {probe.title}"

    def refusal(self, candidate: Candidate) -> str:
        """Refuse what predicts no text."""
        try:
            check_model(candidate.shell, candidate.name)
        except ConfigError as error:
            return f"it {str(error).removeprefix(candidate.name).lstrip()}"
        return ""

    def score(self, candidate: Candidate, device: torch.device) -> Found:
        """Ask it."""
        [found] = ask(candidate.load(device), self._read, candidate.context)
        name = self._column.name
        chance_error = PROBES[found.name].chance_error(found.n_examples)
        others = {CHANCE: {name: Cell(found.chance, error=chance_error)}}
        if found.reference is not None:
            others[REFERENCE] = {name: Cell(found.reference)}
        notes = [f"{candidate.name}, {self._column.label}: {note}" for note in found.notes]
        return Found(self.columns, {name: _cell(found)}, others, notes)


def settings_of(group: ProbesTable) -> Settings:
    """Return what an entry of a suite says of its probes.

    Raises ConfigError for words, or a reference, of a probe that it does not name.
    """
    words = None
    if group.words is not None:
        first, second = group.words
        words = first.strip(), second.strip()
    settings = Settings(words, group.references)
    settings.check_asked(group.names)
    return settings


def _cell(found: ProbeScore) -> Cell:
    return Cell(found.value, error=found.standard_error)
