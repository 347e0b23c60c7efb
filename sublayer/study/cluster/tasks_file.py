"""Which tasks of a study a cluster has, as JSON in its folder: so that they are found again."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sublayer.errors import ConfigError
from sublayer.files.storage import write_file
from sublayer.files.typed import Count, Typed, read_typed
from sublayer.study.cluster.exchange import CLUSTER, STOP, RunFiles

_TASKS = "tasks.json"


class Submitted(Typed):
    """A task that makes a run, at a try."""

    task: str
    """Its id, as the scheduler has it; "" before that is known."""
    name: str = ""
    """By which the scheduler finds it where the id did not arrive; "" before it is submitted."""
    number: Count
    """Of the try, from 1."""
    lost: Count = 0
    """Tries in a row that were lost with nothing gained."""
    reached: str = ""
    """How far the run had come when the last of them was lost."""


class _Content(Typed):
    on: str
    device: str
    hosts: list[str] = []
    runs: dict[str, Submitted] = {}


@dataclass
class TasksFile:
    """The tasks of a study by the paths of their runs in its folder; written at every change."""

    study: Path
    on: str
    device: str
    """On which all runs compute, as on the command line."""
    hosts: list[str] = field(default_factory=list)
    """Those that have answered a probe."""
    runs: dict[str, Submitted] = field(default_factory=dict)
    """Those that have not ended, as far as is known."""

    @classmethod
    def open(cls, study: Path, on: str, device: str | None, usual_device: str) -> "TasksFile":
        """Read what is kept of a study that runs ``on`` a cluster, or begin it.

        A study's runs have one device: without ``device`` it is that of before, or the usual one.
        Raises ConfigError for a damaged file, and where another cluster has tasks of the study.
        """
        kept = _read(study)
        if kept is None:
            return cls(study, on, device or usual_device)
        if kept.on != on:
            _check_ended(study, kept)
            return cls(study, on, device or usual_device)
        return cls(study, on, device or kept.device, kept.hosts, dict(kept.runs))

    @property
    def folder(self) -> Path:
        """The folder of the study's cluster."""
        return self.study / CLUSTER

    @property
    def stop_file(self) -> Path:
        """The file that asks all runs to save and stop."""
        return self.folder / STOP

    def files(self, run: str) -> RunFiles:
        """Return the files of a run."""
        return RunFiles(self.folder / "runs" / run)

    def is_stopping(self) -> bool:
        """Return whether all runs are asked to save and stop; not so where that cannot be seen."""
        with suppress(OSError):
            return self.stop_file.exists()
        return False

    def submit(self, run: str, submitted: Submitted) -> None:
        """Write that a task makes a run. Raises OSError."""
        self.runs[run] = submitted
        self.write()

    def note(self, run: str, submitted: Submitted) -> None:
        """Write what is known of a run's tasks, now or with what is written next."""
        self.runs[run] = submitted
        with suppress(OSError):
            self.write()

    def end(self, run: str) -> None:
        """Write that no task makes a run any more, now or with what is written next."""
        if self.runs.pop(run, None) is not None:
            with suppress(OSError):
                self.write()

    def write(self) -> None:
        """Write the file, whole or not at all. Raises OSError."""
        self.folder.mkdir(exist_ok=True)
        content = _Content(on=self.on, device=self.device, hosts=self.hosts, runs=self.runs)
        write_file(self.folder / _TASKS, f"{content.model_dump_json(indent=1)}\n")


def check_left(study: Path) -> None:
    """Raise ConfigError where a cluster has tasks of a study that is to go on without it."""
    kept = _read(study)
    if kept is not None:
        _check_ended(study, kept)


def _read(study: Path) -> _Content | None:
    path = study / CLUSTER / _TASKS
    try:
        return read_typed(path, _Content, ConfigError)
    except FileNotFoundError:
        return None


def _check_ended(study: Path, kept: _Content) -> None:
    open_runs = _open_runs(study, kept.runs)
    if open_runs:
        folder = study / CLUSTER
        raise ConfigError(
            f"{study} has {len(open_runs)} of its runs on {kept.on}, {open_runs[0]} first: join "
            f"them with --on {kept.on}, or have them save and stop by a file {folder / STOP}; "
            f"where that cluster is gone, remove {folder / _TASKS}"
        )


def _open_runs(study: Path, runs: Mapping[str, Submitted]) -> list[str]:
    return [
        run
        for run, submitted in runs.items()
        if submitted.task
        and RunFiles(study / CLUSTER / "runs" / run).read_end(submitted.number) is None
    ]
