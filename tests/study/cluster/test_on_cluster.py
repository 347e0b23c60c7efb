"""Studies on a cluster whose tasks are processes: the same bits, whatever is lost on the way."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sublayer import cli
from sublayer.api.training import compare
from sublayer.cli import INTERRUPTED
from sublayer.errors import CheckpointError, ConfigError, Interrupted, TrainingError
from sublayer.study.cluster.cluster import TaskState
from sublayer.study.cluster.computing import CLUSTERS
from sublayer.study.cluster.place import ClusterPlace
from sublayer.study.cluster.tries import MOST_TRIES
from tests.study.chain.chains import words, write_chain
from tests.study.cluster.processes import Processes, is_alive, lose
from tests.study.execution.test_side_by_side import FIXED, same_files, values
from tests.study.studies import TINY, write_text

pytestmark = pytest.mark.slow
FFN = ["model.ffn=gelu,swiglu"]
LEFT = """
import os, signal, sys
from pathlib import Path

from sublayer.cli import main
from sublayer.study.cluster.computing import CLUSTERS
from tests.study.chain.chains import words, write_chain
from tests.study.cluster.processes import Processes

CLUSTERS["ray"] = Processes


left = []


def leave(event, arguments):
    if not left and event == "open" and str(arguments[0]).endswith("progress.json"):
        left.append(event)
        os.kill(os.getpid(), int(sys.argv[1]))


sys.addaudithook(leave)
sys.exit(main(sys.argv[2:]))
"""
"""Signals itself where it would read what a node has written of a run."""


class Losing(Processes):
    """Loses the first task of a run with a checkpoint, once."""

    def __init__(self, place: ClusterPlace) -> None:
        super().__init__(place)
        self.lost: list[str] = []

    def active(self, ids: Any) -> dict[str, TaskState]:
        begun = list(Path().glob("*/cluster/runs/arms/*/seed-0/progress.json"))
        saved = list(Path().glob("*/arms/*/seed-0/checkpoints/step-*"))
        for each in ids if begun and saved and not self.lost else ():
            if is_alive(each):
                self.lost.append(each)
                lose(each)
                break
        return dict(super().active(ids))


class Broken(Processes):
    """Nodes on which every run dies at once."""

    def changed(self, command: list[str]) -> list[str]:
        if "probe" in command:
            return command
        return [sys.executable, "-c", "import sys; sys.exit(3)"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("on_cluster") / "river.txt")


@pytest.fixture
def settings(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("SUBLAYER_CACHE", str(text.parent / "cache"))
    monkeypatch.chdir(tmp_path)
    return [*TINY, *FIXED, f"data.path={text}"]


@pytest.fixture
def on_processes(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(kind: type[Processes]) -> list[Processes]:
        made: list[Processes] = []

        def connect(place: ClusterPlace) -> Processes:
            made.append(kind(place))
            return made[-1]

        monkeypatch.setitem(CLUSTERS, "ray", connect)
        return made

    return use


def test_runs_on_a_cluster_are_those_of_here_and_divergence_is_tried_once(
    settings: list[str], on_processes: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {
        "overrides": [*settings, "train.steps=5"],
        "vary": ["optimizer.lr=1e-3,1e6"],
        "seeds": 3,
    }
    here = compare("gpt", **asked, out="here")
    capfd.readouterr()
    clusters = on_processes(Processes)
    there = compare("gpt", **asked, out="there", on="ray")
    said = capfd.readouterr().err.splitlines()
    assert values(there) == values(here)
    assert there["failures"] == here["failures"]
    assert [failure["seed"] for failure in there["failures"]] == [0, 1, 2]
    for name in ("model.safetensors", "test.json", "items.safetensors"):
        assert same_files(name, "here", "there"), name
    assert len([each for each in clusters[0].submitted if "seed" in each]) == 6
    assert said[0].startswith("6 runs on ray, 2 nodes with 2 cores: each takes 1 core and ")
    assert any(line.startswith("[6/6] ") for line in said)
    assert any("Runs were made on a cluster (ray)" in note for note in there["notes"])
    assert not any("cluster" in note for note in here["notes"])
    assert "--on ray" in there["reproduction"]["command"]
    assert json.loads(Path("there/cluster/tasks.json").read_text())["runs"] == {}
    assert Path("there/cluster/progress.txt").read_text() == "done: 6/6\n"
    # What is done is not done again, on a cluster or here.
    assert compare("gpt", **asked, out="there", on="ray")["notes"] == there["notes"]
    assert not [each for each in clusters[1].submitted if "seed" in each]
    assert compare("gpt", **asked, out="there")["notes"] == there["notes"]


def test_a_run_whose_node_is_lost_goes_on_from_its_checkpoint_elsewhere(
    settings: list[str], on_processes: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = [*settings, "train.steps=800", "train.checkpoint_steps=100"]
    asked: dict[str, Any] = {"overrides": settings, "vary": FFN, "seeds": 1}
    clusters = on_processes(Losing)
    there = compare("gpt", **asked, out="there", on="ray")
    said = capfd.readouterr().err
    assert len(clusters[0].lost) == 1
    assert said.count("its node was lost, or its task was ended on ") == 1
    assert said.count("; tried again") == 1
    assert values(there) == values(compare("gpt", **asked, out="here"))
    assert same_files("model.safetensors", "here", "there")


def test_a_run_that_is_lost_too_often_is_no_result(
    settings: list[str], on_processes: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {"overrides": [*settings, "train.steps=5"], "vary": FFN, "seeds": 1}
    clusters = on_processes(Broken)
    with pytest.raises(TrainingError, match="0 of 2 runs done, and 2 runs lost 3 times in a row"):
        compare("gpt", **asked, out="there", on="ray")
    made = [each for each in clusters[0].submitted if "seed" in each]
    assert len(made) == 2 * MOST_TRIES
    assert capfd.readouterr().err.count("given up after 3 tries") == 2
    assert not list(Path("there").rglob("failure.json"))
    on_processes(Processes)
    there = compare("gpt", **asked, out="there", on="ray")
    assert [len(own) for own in values(there)] == [1, 1]


def test_what_cannot_be_made_stops_the_others(settings: list[str], on_processes: Any) -> None:
    settings = [*settings, "train.steps=1000000"]
    damaged = Path("there/arms/1-ffn=swiglu/seed-0/record.json")

    class Damaging(Processes):
        def submit(self, name: str, *rest: Any, **named: Any) -> str:
            if "swiglu" in name:
                damaged.parent.mkdir(parents=True)
                damaged.write_text("{")
            return super().submit(name, *rest, **named)

    clusters = on_processes(Damaging)
    with pytest.raises(CheckpointError, match=r"ffn=swiglu, seed 0: .*record.json is not"):
        compare("gpt", settings, vary=FFN, seeds=1, on="ray", out="there")
    assert len(clusters[0].submitted) == 4  # two of them probes
    assert list(Path("there").rglob("record.json")) == [damaged]
    assert json.loads(Path("there/cluster/tasks.json").read_text())["runs"] == {}


def test_ctrl_c_leaves_the_runs_and_the_same_command_joins_them(
    settings: list[str], on_processes: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = [*settings, "train.steps=200"]
    line = ["compare", "gpt", *settings, "--vary", *FFN, "--seeds", "1", "--out", "there"]
    command = [sys.executable, "-c", LEFT, str(int(signal.SIGINT)), *line, "--on", "ray"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == INTERRUPTED, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("left with 0 of 2 runs done; 2 runs go on on ray: joined again by cd ")
    assert "--on ray --seeds 1 --out there; a file " in last
    tasks = json.loads(Path("there/cluster/tasks.json").read_text())["runs"]
    assert len(tasks) == 2
    asked: dict[str, Any] = {"overrides": settings, "vary": FFN, "seeds": 1}
    with pytest.raises(ConfigError, match="has 2 of its runs on ray"):
        compare("gpt", **asked, out="there")
    clusters = on_processes(Processes)
    there = compare("gpt", **asked, out="there", on="ray")
    assert "2 runs of before on ray: joined" in capfd.readouterr().err
    assert not [each for each in clusters[0].submitted if "seed" in each]
    assert values(there) == values(compare("gpt", **asked, out="here"))


def test_a_file_has_what_runs_save_and_stop(settings: list[str], on_processes: Any) -> None:
    class Stopping(Processes):
        def active(self, ids: Any) -> dict[str, TaskState]:
            if list(Path().glob("there/arms/*/seed-0/checkpoints/step-*")):
                Path("there/cluster/stop").touch()
            return dict(super().active(ids))

    on_processes(Stopping)
    endless = [*settings, "train.steps=1000000", "train.checkpoint_steps=100"]
    with pytest.raises(Interrupted, match=r"stopped by .*stop: 0 of 2 runs done"):
        compare("gpt", endless, vary=FFN, match="none", seeds=1, on="ray", out="there")
    assert json.loads(Path("there/cluster/tasks.json").read_text())["runs"] == {}
    ends = list(Path("there/cluster").rglob("end-1.json"))
    assert {json.loads(end.read_text())["end"] for end in ends} == {"Interrupted"}


def test_runs_on_a_node_with_other_instructions_are_named(
    settings: list[str], on_processes: Any
) -> None:
    class Mixed(Processes):
        def changed(self, command: list[str]) -> list[str]:
            older = any("swiglu" in word for word in command)
            return ["/usr/bin/env", "ATEN_CPU_CAPABILITY=default", *command] if older else command

    on_processes(Mixed)
    short = [*settings, "train.steps=2"]
    there = compare("gpt", short, vary=FFN, match="none", seeds=1, on="ray", out="there")
    (note,) = [each for each in there["notes"] if "on machines that differ" in each]
    assert re.search(r"DEFAULT: 1 of ffn=swiglu", note)
    assert re.search(r": 1 of ffn=gelu", note)


def test_a_chain_on_a_cluster_is_that_of_here(
    tmp_path: Path, on_processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    one = {"seeds": 1, "finetunings": 1, "stages": [{"each": ["sst2"]}], "averages": None}
    study = write_chain(tmp_path / "chain", **one)
    assert cli.main(words(study, "--out", str(tmp_path / "here"))) == 0
    clusters = on_processes(Processes)
    assert cli.main(words(study, "--out", str(tmp_path / "there"), "--on", "ray")) == 0
    assert len([each for each in clusters[0].submitted if "seed" in each]) == 4
    for name in ("model.safetensors", "scores.json"):
        assert same_files(name, str(tmp_path / "here"), str(tmp_path / "there")), name
