"""A cluster without processes: a test says what it takes and answers, and writes for its nodes."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sublayer.config.layering.layers import load_recipe
from sublayer.runs.session import prepare_data
from sublayer.study.cluster.clock import Clock
from sublayer.study.cluster.cluster import Cluster, Node, TaskState
from sublayer.study.cluster.on_cluster import OnCluster
from sublayer.study.cluster.tasks_file import TasksFile
from sublayer.study.execution.job import DONE
from sublayer.study.execution.one_run import FAILURE, Task
from tests.study.studies import settings_of, write_text

_MOST_SLEEPS = 5000


class Scripted(Cluster):
    """Takes all tasks, which run until they are ended, unless a test has it raise something."""

    name = "slurm:small"
    patience_s = 0.0
    grace_s = 10.0

    def __init__(self) -> None:
        self.now = 0.0
        self.there: dict[str, str] = {}
        """Tasks that have not ended, by their ids, and the folder and number of each."""
        self.names: dict[str, str] = {}
        self.states: dict[str, TaskState] = {}
        self.submitted: list[float] = []
        """When each submission was tried."""
        self.refuse: Callable[[], Exception | None] = lambda: None
        self.silent: Callable[[], Exception | None] = lambda: None
        self.script: Callable[[], None] = lambda: None
        self.n_sleeps = 0

    def nodes(self) -> list[Node]:
        return [Node("one", 8, None)]

    def submit(self, name, words, needs, folder, node=""):
        self.submitted.append(self.now)
        if (error := self.refuse()) is not None:
            raise error
        self.names[name] = str(len(self.submitted))
        _, _, *where = words
        self.there[self.names[name]] = " ".join(where)
        return self.names[name]

    def find(self, name: str) -> str | None:
        found = self.names.get(name, "")
        return found if found in self.there else None

    def active(self, ids: Collection[str]) -> Mapping[str, TaskState]:
        if (error := self.silent()) is not None:
            raise error
        running = TaskState(is_running=True)
        return {each: self.states.get(each, running) for each in ids if each in self.there}

    def cancel(self, ids: Collection[str]) -> None:
        for each in ids:
            self.there.pop(each, None)

    def probed(self) -> Mapping[str, str]:
        return {"": "a node"}

    def clock(self) -> Clock:
        """A clock that goes on where somebody sleeps, and has the script go on with it."""
        return Clock(lambda: self.now, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.n_sleeps += 1
        assert self.n_sleeps < _MOST_SLEEPS, "it waits for ever"
        self.script()


class Runs:
    """Some runs of a study, of which the nodes say what a test has them say."""

    def __init__(self, folder: Path, n_runs: int) -> None:
        text = write_text(folder / "river.txt")
        loaded = load_recipe("gpt", settings_of(text))
        data = prepare_data(loaded.recipe)
        self.study = folder / "study"
        self.study.mkdir()
        self.tasks = [
            Task(f"run {number}", self.study / f"run-{number}", loaded, data, loaded.recipe)
            for number in range(n_runs)
        ]
        self.cluster = Scripted()
        self.cluster.script = self._act
        self._acts: dict[float, list[Callable[[], object]]] = {}
        self.tasks_file = TasksFile(self.study, self.cluster.name, "cpu")

    def make(self) -> Mapping[Path, Any]:
        clock = self.cluster.clock()
        return OnCluster(len(self.tasks), self.cluster, self.tasks_file, "it", clock)(self.tasks)

    def at(self, now: float, *acts: Callable[[], object]) -> None:
        """Have something happen at a time, counted from when the runs are made."""
        self._acts.setdefault(now, []).extend(acts)

    def finish_at(self, now: float, *numbers: int) -> None:
        self.at(now, *(partial(self.finish, number) for number in numbers))

    def _act(self) -> None:
        for act in self._acts.get(self.cluster.now, []):
            act()

    def finish(self, number: int) -> None:
        """Have a node make a run whose training fails, which is a result and quickly made."""
        self.write_result(number)
        self.end(number, DONE)

    def write_result(self, number: int) -> None:
        path = self.tasks[number].path
        path.mkdir(exist_ok=True)
        (path / FAILURE).write_text('{"message": "it diverged"}')

    def end(self, number: int, end: Mapping[str, Any]) -> None:
        """Have a node say what the task of a run ended with."""
        task, n_try = self.task(number)
        self.tasks_file.files(f"run-{number}").write_end(n_try, {**end, "host": "one"})
        self.cluster.cancel([task])

    def task(self, number: int) -> tuple[str, int]:
        """Return the id of a run's task, and the number of its try; 0 where it is not there."""
        for each, where in self.cluster.there.items():
            folder, _, n_try = where.rpartition(" ")
            if folder.endswith(f"run-{number}"):
                return each, int(n_try)
        return "", 0

    def is_there(self, number: int) -> bool:
        return bool(self.task(number)[0])
