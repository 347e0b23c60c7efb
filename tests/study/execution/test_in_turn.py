"""Runs one after another: what is said of how long they take, of their text, and of a stop."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sublayer.errors import Interrupted
from sublayer.study.execution import in_turn
from sublayer.study.execution.in_turn import InTurn
from sublayer.study.execution.one_run import Outcome, Task
from sublayer.training.progress import Progress, SilentProgress


def tasks_in(folder: Path, names: str) -> list[Task]:
    return [cast(Task, SimpleNamespace(label=name, path=folder / name)) for name in names]


def test_the_pace_is_that_of_runs_that_were_made_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    prefixes = []

    def finish(task: Task, progress: Progress, *, device: str | None) -> Outcome:
        nonlocal now
        now += 1.0 if task.path.exists() else 60.0
        return Outcome(task.path)

    def shown(prefix: str) -> Progress:
        prefixes.append(prefix)
        return SilentProgress()

    monkeypatch.setattr(in_turn, "finish_run", finish)
    monkeypatch.setattr(in_turn, "default_progress", shown)
    monkeypatch.setattr(in_turn, "time", SimpleNamespace(monotonic=lambda: now))
    (tmp_path / "a").mkdir()  # begun, and stopped shortly before its end
    InTurn(4, None)(tasks_in(tmp_path, "abcd"))
    assert prefixes == [
        "[1/4] a: ",
        "[2/4] b: ",
        "[3/4, about 2:00 to go] c: ",
        "[4/4, about 1:00 to go] d: ",
    ]


def test_a_warning_that_is_true_of_several_runs_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def finish(task: Task, progress: Progress, **_: Any) -> Outcome:
        progress.warn("a document is long")
        progress.note("resumed at step 3")
        return Outcome(task.path)

    monkeypatch.setattr(in_turn, "finish_run", finish)
    run_all = InTurn(3, None)
    run_all(tasks_in(tmp_path, "ab"))
    run_all(tasks_in(tmp_path, "c"))
    said = capsys.readouterr().err
    assert said.count("a document is long") == 1
    assert said.count("resumed at step 3") == 3


@pytest.mark.parametrize(
    "stop",
    [
        # As train says it, whose command needs an option for that.
        Interrupted("interrupted and saved; the same command with --resume resumes"),
        KeyboardInterrupt(),  # while a run is scored
    ],
    ids=["training", "scoring"],
)
def test_a_study_that_is_stopped_says_what_is_done_and_that_the_same_command_resumes(
    stop: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish(task: Task, *_: Any, **__: Any) -> Outcome:
        if task.label == "c":
            raise stop
        return Outcome(task.path)

    monkeypatch.setattr(in_turn, "finish_run", finish)
    with pytest.raises(Interrupted) as stopped:
        InTurn(5, None)(tasks_in(tmp_path, "abcd"))
    assert str(stopped.value) == (
        "interrupted with 2 of 5 runs done, and the others saved; the same command resumes"
    )
