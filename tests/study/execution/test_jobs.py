"""Jobs of a comparison: their messages, their shares of the machine, their order."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from sublayer.api.training import compare
from sublayer.config.layering.layers import load_recipe
from sublayer.data.prepare import Data
from sublayer.errors import (
    ConfigError,
    DataError,
    Interrupted,
)
from sublayer.runs.session import prepare_data
from sublayer.study.arms import expand
from sublayer.study.budget.budget import MatchedArm
from sublayer.study.budget.match import Rule
from sublayer.study.budget.resources import PROGRAM_BYTES
from sublayer.study.budget.sized_arm import Sized, size_arm
from sublayer.study.execution import jobs as of_jobs
from sublayer.study.execution import shares
from sublayer.study.execution.company import company
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
from sublayer.study.execution.shares import describe_share
from sublayer.training.progress import Status
from tests.study.studies import FFN, TINY, Studies, settings_of


def test_a_job_and_a_status_are_read_as_they_were_written() -> None:
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
def test_an_error_stays_of_its_kind_and_says_whose_it_is(
    error: Exception, kind: type[Exception], words: str
) -> None:
    message = end_message(error)
    assert message is not None
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
def test_what_is_measured_in_time_is_made_in_turn(
    jobs: int, settings: str, rule: Rule, message: str
) -> None:
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
def test_threads_are_shared_and_never_none(
    jobs: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_jobs, "cores", lambda: 7)
    assert shared_threads(jobs) == threads
    given = (["train.steps=5"], ["train.steps=5", "train.threads=9"])
    arms = [expand(load_recipe("gpt", each), ["model.ffn=gelu,relu"])[0] for each in given]
    shared = share_threads(arms, jobs)
    assert [arm.loaded.recipe.train.threads for arm in shared] == [threads, 9]


@pytest.fixture
def share(studies: Studies, settings: list[str]) -> tuple[list[MatchedArm], dict[str, Data]]:
    """Two arms, the second of which is wider, and their data."""
    recipe = load_recipe("gpt", settings_of(studies.text, "train.threads=2"))
    arms = expand(recipe, ["model.d_ff=32,1500000"])
    data = prepare_data(arms[0].loaded.recipe)
    return [MatchedArm(arm, {}, (), 0.0) for arm in arms], {arm.name: data for arm in arms}


def described(share: tuple[list[MatchedArm], dict[str, Data]], jobs: int, n_runs: int = 40) -> str:
    arms, data = share
    return describe_share(arms, data, n_runs=n_runs, jobs=jobs, device="cpu", folder=Path())


def test_memory_is_that_of_the_largest_arm_times_the_runs(
    share: tuple[list[MatchedArm], dict[str, Data]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "cores", lambda: 8)
    monkeypatch.setattr(shares, "total_memory", lambda: 1 << 50)

    def gibibytes(jobs: int, n_runs: int = 40) -> float:
        found = re.search(r"about ([\d.]+) GiB of memory together", described(share, jobs, n_runs))
        assert found is not None
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


def test_more_than_the_machine_holds_is_refused_with_what_it_holds(
    share: tuple[list[MatchedArm], dict[str, Data]], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_one_that_cannot_take_steps_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    impossible = replace(tiny_arm(), vocab_size=0)
    begun: list[subprocess.Popen[bytes]] = []
    with pytest.raises(ConfigError, match="of 2 processes .* one ended, .* fewer --jobs"):
        with company(impossible, 1, "cpu") as others:
            begun += others
    assert not begun


def test_runs_of_arms_alternate_seed_by_seed(
    settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    short = [each for each in settings if "steps" not in each]
    compare("gpt", [*short, "train.steps=2"], vary=[FFN], match="time", seeds=3)
    shown = capsys.readouterr().err
    begun = re.findall(r"^\[\d+/\d+[^]]*\] ffn=(\w+), seed (\d): ", shown, flags=re.MULTILINE)
    in_order = " ".join(arm[0] + seed for arm, seed in dict.fromkeys(begun))
    assert in_order == "g0 s0 s1 g1 g2 s2"
