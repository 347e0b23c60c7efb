"""Runs made one after another, in a process of their own, and what is shown of them meanwhile."""

import io
import re
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from sublayer.config.layering.layers import load_recipe
from sublayer.config.recipe import Recipe
from sublayer.data.shards import workers
from sublayer.errors import DataError, Interrupted
from sublayer.study.execution import in_turn, shared_data, worker
from sublayer.study.execution.board import Board, PlainBoard, Tally, TerminalBoard
from sublayer.study.execution.in_turn import InTurn
from sublayer.study.execution.job import Job, write_job
from sublayer.study.execution.one_run import Outcome, Task
from sublayer.training.progress import Status


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def at_step(step: int, of: int = 400) -> Status:
    return Status(step, of, loss=1.5, tokens_per_s=1000.0)


def test_what_is_left_is_estimated_from_the_work_that_was_done_now() -> None:
    clock = Clock()
    tally = Tally(total=10, clock=clock)
    tally.find()
    tally.find()
    tally.work(0.0)
    assert tally.describe() == "2/10"
    clock.now += 60.0
    tally.work(1.0)
    tally.work(0.5)  # of a second run at the same time
    tally.done += 1
    # 6.5 runs at 40 seconds each.
    assert tally.describe() == "3/10, about 4:20 to go"
    tally.skip(-0.5)  # which is lost
    assert tally.describe() == "3/10, about 4:40 to go"


def test_a_run_that_goes_on_counts_with_the_steps_that_are_left() -> None:
    clock = Clock()
    board = PlainBoard(Tally(2, clock), io.StringIO(), clock)
    board.begin("gelu, seed 0")
    board.update("gelu, seed 0", at_step(301))
    clock.now += 10.0
    board.update("gelu, seed 0", at_step(351))
    # 50 of its steps in 10 s, 49 of them left, and 400 of the other run.
    assert board.tally.describe() == "0/2, about 1:30 to go"
    board.finish("gelu, seed 0", "valid loss 1.4")
    assert board.tally.describe() == "1/2, about 0:40 to go"


def running(board: Board, clock: Clock) -> None:
    board.begin("gelu, seed 2")
    board.begin("relu, seed 3")
    board.update("gelu, seed 2", at_step(1))
    clock.now += 3.0
    board.update("gelu, seed 2", at_step(101))


def test_a_pipe_has_a_line_for_each_run_and_one_where_none_ends_for_long() -> None:
    clock, stream = Clock(), io.StringIO()
    board = PlainBoard(Tally(4, clock), stream, clock)
    running(board, clock)
    board.tick()
    clock.now += 2.0
    board.tick()
    board.tick()
    clock.now += 1.0
    board.finish("gelu, seed 2", "valid loss 1.4")
    board.stage("relu, seed 3", "reading the text")
    clock.now += 5.0
    board.tick()
    for label in ("relu, seed 3", "relu, seed 4"):  # of one warning one line
        board.warn(label, "a document is long")
    board.drop("relu, seed 3")
    clock.now += 50.0
    board.tick()
    assert stream.getvalue().splitlines() == [
        "[0/4, about 1:15 to go] running gelu, seed 2 (step 101/400, loss 1.5000); "
        "relu, seed 3 (starting)",
        "[1/4, about 0:18 to go] gelu, seed 2: valid loss 1.4, after 0:06",
        "[1/4, about 0:33 to go] running relu, seed 3 (reading the text)",
        "relu, seed 3: a document is long",
    ]


def test_a_terminal_has_a_bar_for_each_run_that_is_made(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    clock, stream = Clock(), io.StringIO()
    board = TerminalBoard(Tally(4, clock), stream, clock)
    board.begin("post-norm, seed 1")
    board.finish("post-norm, seed 1", "valid loss 1.4")
    running(board, clock)
    board.note("gelu, seed 2: a document is long")
    with board:
        pass
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    text = [line.strip() for line in shown.splitlines() if line.strip()]
    assert [line.split("  ")[0] for line in text[:5]] == [
        "gelu, seed 2: a document is long",
        "all runs",
        "gelu, seed 2",
        "relu, seed 3",
        "post-norm, seed 1: valid loss 1.4, after 0:00",
    ]
    assert "1/4, about 0:33 to go" in text[1]
    assert "step 101/400, loss 1.5000, 0:09 left" in text[2]
    assert "starting" in text[3]


def of_training() -> Interrupted:
    # As train says it, whose command needs an option for that.
    return Interrupted("interrupted and saved; the same command with --resume resumes")


@pytest.mark.parametrize("stop", [of_training, KeyboardInterrupt], ids=["training", "scoring"])
def test_a_stopped_study_says_what_is_done_and_a_warning_once(
    stop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def finish(task: Task, progress: Any, **_: Any) -> Outcome:
        if task.label == "d":
            raise stop()
        progress.warn("a document is long")
        progress.note("resumed at step 3")
        return Outcome(task.path)

    monkeypatch.setattr(in_turn, "is_finished", lambda task: task.path.exists())
    monkeypatch.setattr(in_turn, "describe_end", lambda task, outcome: "valid loss 1.5")
    monkeypatch.setattr(in_turn, "finish_run", finish)
    (tmp_path / "a").mkdir()  # which is done
    tasks = [cast(Task, SimpleNamespace(label=name, path=tmp_path / name)) for name in "abcde"]
    with pytest.raises(Interrupted) as stopped:
        InTurn(5, None)(tasks)
    assert str(stopped.value) == (
        "interrupted with 3 of 5 runs done, and the others saved; the same command resumes"
    )
    assert capsys.readouterr().err.splitlines() == [
        "a document is long",
        "resumed at step 3",
        "b: a document is long",
        "b: resumed at step 3",
        "[2/5] b: valid loss 1.5, after 0:00",
        "c: resumed at step 3",
        "[3/5] c: valid loss 1.5, after 0:00",
    ]


def test_a_text_is_encoded_by_as_many_processes_as_the_run_has_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def prepare(recipe: Recipe, pretrained: object) -> Any:
        found.append(workers.default_processes())
        raise DataError("it is not prepared")

    threads = torch.get_num_threads()
    recipe = load_recipe("gpt", [f"train.threads={threads}"]).recipe
    line = write_job(Job("one", tmp_path, recipe, recipe, {}, "cpu"))
    monkeypatch.setattr(workers, "cores", lambda: 64)
    monkeypatch.setattr(shared_data, "prepare_data", prepare)
    channel = SimpleNamespace(send=lambda message: None)
    end = worker._Worker(channel).attend(line, SimpleQueue())  # type: ignore[arg-type]
    assert end == {"end": "DataError", "text": "it is not prepared"}
    assert found == [min(threads, workers.MOST_PROCESSES)]
