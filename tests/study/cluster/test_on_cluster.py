"""Studies on a cluster whose tasks are processes: the same bits, whatever is lost on the way."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sublayer.api.training import compare
from sublayer.cli import INTERRUPTED
from sublayer.errors import ConfigError, TrainingError
from sublayer.study.cluster.cluster import TaskState
from sublayer.study.cluster.computing import CLUSTERS
from sublayer.study.cluster.place import ClusterPlace
from sublayer.study.cluster.tries import MOST_TRIES
from tests.study.cluster.processes import Processes, is_alive, lose
from tests.study.studies import FFN, Studies, copied, read_results, same_files, settings_of, values

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
    studies: Studies, settings: list[str], on_processes: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    here = copied(studies.failed(), "here")
    shutil.copytree(here, "there")
    for gone in ("0-lr=1e-3/seed-1", "2-lr=1e6/seed-2"):
        shutil.rmtree(Path("there/arms", gone))
    asked: dict[str, Any] = {"vary": ["optimizer.lr=1e-3,1e-2,1e6"], "seeds": 3, "out": "there"}
    clusters = on_processes(Processes)
    there = compare("gpt", settings, **asked, on="ray")
    said = capfd.readouterr().err.splitlines()
    known = read_results(here)
    assert values(there) == values(known)
    assert there["failures"] == known["failures"]
    for name in ("model.safetensors", "test.json", "items.safetensors"):
        assert same_files(name, "here", "there"), name
    assert len([name for name in clusters[0].submitted if "seed" in name]) == 2
    assert any(line.startswith("9 runs on ray, 2 nodes with 2 cores: each takes") for line in said)
    assert any("Runs were made on a cluster (ray)" in note for note in there["notes"])
    assert "--on ray" in there["reproduction"]["command"]
    assert json.loads(Path("there/cluster/tasks.json").read_text())["runs"] == {}
    assert Path("there/cluster/progress.txt").read_text() == "done: 9/9\n"
    # The same command makes nothing again, on a cluster or here.
    assert compare("gpt", settings, **asked, on="ray")["notes"] == there["notes"]
    assert not [name for name in clusters[1].submitted if "seed" in name]
    assert compare("gpt", settings, **asked)["notes"] == there["notes"]


@pytest.mark.all
def test_a_run_whose_node_is_lost_goes_on_from_its_checkpoint_elsewhere(
    studies: Studies, settings: list[str], on_processes: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(studies.text, "train.steps=800", "train.checkpoint_steps=100")
    asked: dict[str, Any] = {"overrides": settings, "vary": [FFN], "seeds": 1}
    clusters = on_processes(Losing)
    there = compare("gpt", **asked, out="there", on="ray")
    said = capfd.readouterr().err
    assert len(clusters[0].lost) == 1
    assert said.count("its node was lost, or its task was ended on ") == 1
    assert said.count("; tried again") == 1
    assert values(there) == values(compare("gpt", **asked, out="here"))
    assert same_files("model.safetensors", "here", "there")


def test_a_run_that_is_lost_too_often_is_no_result(
    studies: Studies, settings: list[str], on_processes: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {"overrides": settings, "vary": [FFN], "seeds": 1}
    clusters = on_processes(Broken)
    with pytest.raises(TrainingError, match="0 of 2 runs done, and 2 runs lost 3 times in a row"):
        compare("gpt", **asked, out="there", on="ray")
    made = [each for each in clusters[0].submitted if "seed" in each]
    assert len(made) == 2 * MOST_TRIES
    assert capfd.readouterr().err.count("given up after 3 tries") == 2
    assert not list(Path("there").rglob("failure.json"))


@pytest.mark.all
def test_ctrl_c_leaves_the_runs_and_the_same_command_joins_them(
    studies: Studies, settings: list[str], on_processes: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(studies.text, "train.steps=200")
    line = ["compare", "gpt", *settings, "--vary", FFN, "--seeds", "1", "--out", "there"]
    command = [sys.executable, "-c", LEFT, str(int(signal.SIGINT)), *line, "--on", "ray"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == INTERRUPTED, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("left with 0 of 2 runs done; 2 runs go on on ray: joined again by cd ")
    assert "--on ray --seeds 1 --out there; a file " in last
    tasks = json.loads(Path("there/cluster/tasks.json").read_text())["runs"]
    assert len(tasks) == 2
    asked: dict[str, Any] = {"overrides": settings, "vary": [FFN], "seeds": 1}
    with pytest.raises(ConfigError, match="has 2 of its runs on ray"):
        compare("gpt", **asked, out="there")
    clusters = on_processes(Processes)
    there = compare("gpt", **asked, out="there", on="ray")
    assert "2 runs of before on ray: joined" in capfd.readouterr().err
    assert not [each for each in clusters[0].submitted if "seed" in each]
    assert values(there) == values(compare("gpt", **asked, out="here"))
