"""Which comparisons can make several runs at a time, and what of the machine each run has."""

import re
from pathlib import Path

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError
from sublayer.study.arms import expand
from sublayer.study.budget.budget import MatchedArm
from sublayer.study.budget.match import Rule
from sublayer.study.budget.resources import PROGRAM_BYTES
from sublayer.study.execution import jobs as of_jobs
from sublayer.study.execution import shares
from sublayer.study.execution.jobs import check_jobs, share_threads, shared_threads
from sublayer.study.execution.shares import describe_share
from tests.study.studies import TINY, write_text

GIB = 1 << 30


@pytest.mark.parametrize(
    ("jobs", "settings", "rule", "message"),
    [
        (2, "train.steps=5", "time", r"--jobs 2 contradicts match = time: .* --match flops"),
        (3, "train.minutes=1.5", "parameters", r"--jobs 3 .* train.minutes = 1.5: .* train.steps"),
        (0, "train.steps=5", "none", "--jobs 0 is not between 1 and 1024"),
        (1025, "train.steps=5", "none", "--jobs 1025 is not between 1 and 1024"),
    ],
)
def test_what_is_measured_in_time_is_made_in_turn(
    jobs: int, settings: str, rule: Rule, message: str
) -> None:
    arms = expand(load_recipe("gpt", [settings]), ["model.ffn=gelu,swiglu"])
    with pytest.raises(ConfigError, match=message):
        check_jobs(jobs, arms, rule)
    if jobs in (2, 3):
        check_jobs(1, arms, rule)


def test_minutes_of_a_later_arm_are_seen() -> None:
    arms = expand(load_recipe("gpt", ["train.steps=5"]), ["model.ffn=gelu,swiglu"])
    timed = expand(load_recipe("gpt", ["train.minutes=2"]), ["model.ffn=gelu,swiglu"])
    check_jobs(2, arms, "flops")
    with pytest.raises(ConfigError, match="train.minutes = 2"):
        check_jobs(2, [arms[0], timed[1]], "none")


@pytest.mark.parametrize(("jobs", "threads"), [(1, 7), (2, 3), (3, 2), (7, 1), (20, 1)])
def test_threads_are_shared_and_never_none(
    jobs: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_jobs, "cores", lambda: 7)
    assert shared_threads(jobs) == threads
    arms = expand(load_recipe("gpt", ["train.steps=5"]), ["model.ffn=gelu,swiglu"])
    fixed = expand(
        load_recipe("gpt", ["train.steps=5", "train.threads=9"]), ["model.ffn=gelu,relu"]
    )
    shared = share_threads([*arms, *fixed], jobs)
    assert [arm.loaded.recipe.train.threads for arm in shared] == [threads, threads, 9, 9]


@pytest.fixture
def share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[MatchedArm], dict[str, Data]]:
    """Two arms, the second of which is wider, and their data."""
    from sublayer.runs.session import prepare_data

    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    text = write_text(tmp_path / "river.txt")
    settings = [*TINY, f"data.path={text}", "train.steps=5", "train.threads=2"]
    settings.append("train.precision=float32")
    arms = expand(load_recipe("gpt", settings), ["model.d_ff=32,1500000"])
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
