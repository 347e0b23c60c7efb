"""Runs one after another: what is said of them, and of a stop."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sublayer.errors import Interrupted
from sublayer.study.execution import in_turn
from sublayer.study.execution.in_turn import InTurn
from sublayer.study.execution.one_run import Outcome, Task
from sublayer.training.progress import Progress


def tasks_in(folder: Path, names: str) -> list[Task]:
    return [cast(Task, SimpleNamespace(label=name, path=folder / name)) for name in names]


@pytest.fixture(autouse=True)
def _nothing_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_turn, "is_finished", lambda task: task.path.exists())
    monkeypatch.setattr(in_turn, "describe_end", lambda task, outcome: "valid loss 1.5")


def test_what_is_said_of_runs_begins_with_their_labels_and_a_warning_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def finish(task: Task, progress: Progress, **_: Any) -> Outcome:
        progress.warn("a document is long")
        progress.note("resumed at step 3")
        return Outcome(task.path)

    monkeypatch.setattr(in_turn, "finish_run", finish)
    run_all = InTurn(4, None)
    (tmp_path / "a").mkdir()  # which is done
    run_all(tasks_in(tmp_path, "ab"))
    run_all(tasks_in(tmp_path, "cd"))
    assert capsys.readouterr().err.splitlines() == [
        "a document is long",
        "resumed at step 3",
        "b: a document is long",
        "b: resumed at step 3",
        "[2/4] b: valid loss 1.5, after 0:00",
        "c: resumed at step 3",
        "[3/4] c: valid loss 1.5, after 0:00",
        "d: resumed at step 3",
        "[4/4] d: valid loss 1.5, after 0:00",
    ]


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
