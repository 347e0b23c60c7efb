"""What Slurm's commands print, and what it means: jobs, their names, and no answer."""

from pathlib import Path

import pytest

from sublayer.study.cluster.cluster import Needs, NoAnswer, Refused, TaskState
from sublayer.study.cluster.schedulers.slurm_cluster import SlurmCluster

JOBS = """
7|RUNNING|None|sublayer ffn=gelu, seed 0 0a1b2c3d
8|PENDING|PartitionTimeLimit|sublayer a|b, seed 1 1a1b2c3d
9|NODE_FAIL|None|sublayer ffn=gelu, seed 2 2a1b2c3d
10|RUNNING|None|of somebody else's
"""


class Asked(SlurmCluster):
    """Slurm as its commands in a folder have it."""

    def __init__(self) -> None:
        self.name = "slurm:small"
        self._partition = "small"
        self._rows = [["small*", "node1", "1", "2000", "(null)", "idle"]]


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def write_command(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_jobs_that_have_not_ended_say_whether_they_run_and_why_they_wait(commands):
    write_command(commands / "squeue", f"cat << 'END'\n{JOBS.strip()}\nEND")
    assert Asked().active(["7", "8", "9", "11"]) == {
        "7": TaskState(True, "None"),
        "8": TaskState(False, "PartitionTimeLimit"),
    }


def test_a_job_is_found_by_the_last_word_of_its_name(commands):
    write_command(commands / "squeue", f"cat << 'END'\n{JOBS.strip()}\nEND")
    cluster = Asked()
    assert cluster.find("sublayer a_b, seed 1 1a1b2c3d") == "8"
    assert cluster.find("sublayer ffn=gelu, seed 2 2a1b2c3d") is None  # it has ended
    assert cluster.find("sublayer ffn=gelu, seed 0 ffffffff") is None


def test_what_squeue_says_where_it_has_no_answer_is_passed_on(commands, monkeypatch):
    write_command(commands / "squeue", "echo 'error: Unable to contact controller' >&2; exit 1")
    with pytest.raises(NoAnswer, match="--on slurm:small: error: Unable to contact controller"):
        Asked().active(["7"])
    (commands / "squeue").unlink()
    monkeypatch.setenv("PATH", str(commands))
    with pytest.raises(NoAnswer, match="squeue is not there, or does not answer"):
        Asked().find("sublayer 7")


def test_a_submission_that_is_refused_says_what_sbatch_says(commands, tmp_path):
    submitit = pytest.importorskip("submitit")
    write_command(
        commands / "sbatch", "echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; exit 1"
    )
    write_command(commands / "srun", "exit 0")
    write_command(commands / "squeue", "exit 1")
    cluster = Asked()
    cluster._submitit = submitit
    with pytest.raises(Refused, match="--on slurm:small: .*QOSMaxSubmitJobPerUserLimit"):
        cluster.submit("sublayer one 0a1b2c3d", ["run"], Needs(1, 1 << 30), tmp_path)
    print_name = """
name=$(grep -- --job-name= "$1" || grep -- --job-name= /dev/stdin)
echo "$name" > "$0.name"
echo Submitted batch job 12"""
    write_command(commands / "sbatch", print_name)
    assert cluster.submit("sublayer one, 0a1b2c3d", ["run"], Needs(1, 1 << 30), tmp_path) == "12"
    assert "sublayer one, 0a1b2c3d" in (commands / "sbatch.name").read_text()
