"""Studies on a cluster whose tasks are processes: the same bits, whatever is lost on the way."""

import json
import shutil
from pathlib import Path
from typing import Any

from sublayer.api.training import compare
from sublayer.study.cluster.computing import CLUSTERS
from sublayer.study.cluster.place import ClusterPlace
from tests.study.cluster.processes import Processes
from tests.study.studies import copied, read_results, same_files, values


def test_runs_on_a_cluster_are_those_of_here_and_divergence_is_tried_once(
    studies, settings, monkeypatch, capfd
):
    clusters: list[Processes] = []

    def connect(place: ClusterPlace) -> Processes:
        clusters.append(Processes(place))
        return clusters[-1]

    monkeypatch.setitem(CLUSTERS, "ray", connect)
    here = copied(studies.failed(), "here")
    shutil.copytree(here, "there")
    for gone in ("0-lr=1e-3/seed-1", "2-lr=1e6/seed-2"):
        shutil.rmtree(Path("there/arms", gone))
    asked: dict[str, Any] = {"vary": ["optimizer.lr=1e-3,1e-2,1e6"], "seeds": 3, "out": "there"}
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
