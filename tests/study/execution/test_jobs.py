"""Jobs of a comparison: messages, shares of the machine, order, stops, and what is shown."""

import io
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from sublayer.api.training import compare
from sublayer.config.layering.layers import load_recipe
from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data
from sublayer.data.shards import workers
from sublayer.errors import ConfigError, DataError, Interrupted
from sublayer.runs.session import prepare_data
from sublayer.study.arms import expand
from sublayer.study.budget.budget import MatchedArm
from sublayer.study.budget.resources import PROGRAM_BYTES
from sublayer.study.budget.sized_arm import Sized, size_arm
from sublayer.study.execution import in_turn, shared_data, shares, worker
from sublayer.study.execution import jobs as of_jobs
from sublayer.study.execution.board import Board, PlainBoard, Tally, TerminalBoard
from sublayer.study.execution.company import company
from sublayer.study.execution.in_turn import InTurn
from sublayer.study.execution.job import (
    DONE,
    Job,
    end_message,
    read_end,
    read_job,
    read_status,
    status_message,
    write_job,
)
from sublayer.study.execution.jobs import check_jobs, share_threads, shared_threads
from sublayer.study.execution.one_run import Outcome, Task
from sublayer.study.execution.shares import describe_share
from sublayer.training.progress import Status
from tests.study.studies import FFN, TINY, settings_of


def test_a_job_and_a_status_are_read_as_they_were_written():
    recipe = load_recipe("multi30k-tiny", ["train.threads=3", "data.path=é\n.txt"]).recipe
    scored = load_recipe("gpt", ["train.seed=7"]).recipe
    job = Job("ffn=gelu, seed 3", Path("runs/é"), recipe, scored, {"test": "ab"}, "cuda:1")
    line = write_job(job)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert read_job(line) == job
    status = Status(3, 5, 1.25, 1000.5)
    assert read_status(status_message(status)) == status
    assert read_status({"note": "evaluating"}) is None


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (DataError("the text is gone"), DataError, "gelu, seed 2: the text is gone"),
        (Interrupted("it is saved"), Interrupted, "gelu, seed 2: it is saved"),
        (OSError(28, "No space left", "runs/a"), OSError, "[Errno 28] No space left: 'runs/a'"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), ConfigError, "too little mem"),
    ],
)
def test_an_error_stays_of_its_kind_and_says_whose_it_is(error, kind, words):
    message = end_message(error)
    found = read_end(message, "gelu, seed 2")
    assert type(found) is kind and words in str(found)
    # What is done is no error, and what nobody can mend no message.
    assert read_end(DONE, "gelu, seed 2") is None
    assert end_message(KeyError("step")) is end_message(RuntimeError("shapes")) is None


GIB = 1 << 30


@pytest.mark.parametrize(
    ("jobs", "settings", "rule", "message"),
    [
        (2, "train.steps=5", "time", "--jobs 2 contradicts match = time"),
        (3, "train.minutes=1.5", "parameters", r"--jobs 3 .* train.minutes = 1.5"),
        (0, "train.steps=5", "none", "--jobs 0 is not between 1 and 1024"),
    ],
)
def test_what_is_measured_in_time_is_made_in_turn(jobs, settings, rule, message):
    arms = expand(load_recipe("gpt", [settings]), ["model.ffn=gelu,swiglu"])
    with pytest.raises(ConfigError, match=message):
        check_jobs(jobs, arms, rule)
    if jobs:
        check_jobs(1, arms, rule)
        plain = expand(load_recipe("gpt", ["train.steps=5"]), ["model.ffn=gelu,swiglu"])
        check_jobs(2, plain, "flops")
        with pytest.raises(ConfigError, match=message):
            check_jobs(jobs, [plain[0], arms[1]], rule)  # of a later arm


@pytest.mark.parametrize(("jobs", "threads"), [(2, 3), (20, 1)])
def test_threads_are_shared_and_never_none(jobs, threads, monkeypatch):
    monkeypatch.setattr(of_jobs, "cores", lambda: 7)
    assert shared_threads(jobs) == threads
    given = (["train.steps=5"], ["train.steps=5", "train.threads=9"])
    arms = [expand(load_recipe("gpt", each), ["model.ffn=gelu,relu"])[0] for each in given]
    shared = share_threads(arms, jobs)
    assert [arm.loaded.recipe.train.threads for arm in shared] == [threads, 9]


@pytest.fixture
def share(studies, settings):
    """Two arms, the second of which is wider, and their data."""
    recipe = load_recipe("gpt", settings_of(studies.text, "train.threads=2"))
    arms = expand(recipe, ["model.d_ff=32,1500000"])
    data = prepare_data(arms[0].loaded.recipe)
    return [MatchedArm(arm, {}, (), 0.0) for arm in arms], {arm.name: data for arm in arms}


def described(share: tuple[list[MatchedArm], dict[str, Data]], jobs: int, n_runs: int = 40) -> str:
    arms, data = share
    return describe_share(arms, data, n_runs=n_runs, jobs=jobs, device="cpu", folder=Path())


def test_memory_is_that_of_the_largest_arm_times_the_runs(share, monkeypatch):
    monkeypatch.setattr(shares, "cores", lambda: 8)
    monkeypatch.setattr(shares, "total_memory", lambda: 1 << 50)

    def gibibytes(jobs: int, n_runs: int = 40) -> float:
        found = re.search(r"about ([\d.]+) GiB of memory together", described(share, jobs, n_runs))
        return float(found[1])

    # The process that starts them has a program of its own.
    program = PROGRAM_BYTES / GIB
    # 24 million parameters, their gradients and two states of each are 0.36 GiB, copies that are
    # saved 0.27, the program 0.39; beside them is what a pass keeps of 32 tokens: of each 1.5
    # million hidden units are 0.18, as they are, activated, and as two gradients.
    each = gibibytes(1) - program
    assert 1.02 + 4 * 0.18 < each < 1.02 + 5 * 0.18
    assert gibibytes(4) == pytest.approx(4 * each + program, rel=0.01)
    # Runs that there are not take nothing.
    assert gibibytes(30, n_runs=4) == gibibytes(4)
    assert described(share, 4).startswith("40 runs, 4 at a time with 2 threads each; about ")
    assert "cores" not in described(share, 4)
    assert described(share, 5).endswith(
        "; 5 x 2 threads are more than 8 cores and wait for each other"
    )


def test_more_than_the_machine_holds_is_refused_with_what_it_holds(share, monkeypatch):
    monkeypatch.setattr(shares, "total_memory", lambda: 5 * GIB)
    with pytest.raises(
        ConfigError, match=r"--jobs 9 needs .* GiB of memory, 5 GiB here: give --jobs [23]"
    ):
        described(share, 9)
    described(share, 2)
    monkeypatch.setattr(shares, "total_memory", lambda: GIB)
    with pytest.raises(ConfigError, match=r"--jobs 2 needs .*, 1 GiB here: leave it out"):
        described(share, 2)


SETTINGS = [*TINY, "train.steps=5", "train.precision=float32", "train.threads=1"]


def tiny_arm() -> Sized:
    arm, _ = expand(load_recipe("gpt", SETTINGS), ["model.ffn=gelu,relu"])
    return size_arm(arm, arm.loaded, 256)


def test_one_that_cannot_take_steps_is_an_error(capfd):
    impossible = replace(tiny_arm(), vocab_size=0)
    begun: list[subprocess.Popen[bytes]] = []
    with pytest.raises(ConfigError, match="of 2 processes .* one ended, .* fewer --jobs"):
        with company(impossible, 1, "cpu") as others:
            begun += others
    assert not begun


def test_runs_of_arms_alternate_seed_by_seed(settings, capsys):
    short = [each for each in settings if "steps" not in each]
    compare("gpt", [*short, "train.steps=2"], vary=[FFN], match="time", seeds=3)
    shown = capsys.readouterr().err
    begun = re.findall(r"^\[\d+/\d+[^]]*\] ffn=(\w+), seed (\d): ", shown, flags=re.MULTILINE)
    in_order = " ".join(arm[0] + seed for arm, seed in dict.fromkeys(begun))
    assert in_order == "g0 s0 s1 g1 g2 s2"


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def at_step(step: int, of: int = 400) -> Status:
    return Status(step, of, loss=1.5, tokens_per_s=1000.0)


def test_what_is_left_is_estimated_from_the_work_that_was_done_now():
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


def running(board: Board, clock: Clock) -> None:
    board.begin("gelu, seed 2")
    board.begin("relu, seed 3")
    board.update("gelu, seed 2", at_step(1))
    clock.now += 3.0
    board.update("gelu, seed 2", at_step(101))


def test_a_pipe_has_a_line_for_each_run_and_one_where_none_ends_for_long():
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


def test_a_terminal_has_a_bar_for_each_run_that_is_made(monkeypatch):
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
def test_a_stopped_study_says_what_is_done_and_a_warning_once(stop, tmp_path, monkeypatch, capsys):
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


def test_a_text_is_encoded_by_as_many_processes_as_the_run_has_threads(tmp_path, monkeypatch):
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
    end = worker._Worker(channel).attend(line, SimpleQueue())
    assert end == {"end": "DataError", "text": "it is not prepared"}
    assert found == [min(threads, workers.MOST_PROCESSES)]
