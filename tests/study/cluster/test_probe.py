"""Nodes are asked whether they see the study's folder before anything is spent."""

import re

import pytest

from sublayer.errors import ConfigError
from sublayer.study.cluster.place import ClusterPlace
from sublayer.study.cluster.probe import check_nodes
from tests.study.cluster.processes import OtherDisk, OtherVersions, Processes

PLACE = ClusterPlace("ray")


def never() -> bool:
    return False


@pytest.mark.slow
def test_every_node_answers_and_nothing_is_left(tmp_path):
    cluster = Processes(PLACE)
    assert len(check_nodes(cluster, tmp_path, never)) == 2
    assert all(re.fullmatch("sublayer probe [0-9a-f]{8}", each) for each in cluster.submitted)
    assert len(set(cluster.submitted)) == 2
    assert not list(tmp_path.iterdir())


def test_a_folder_that_a_node_does_not_see_is_a_line(tmp_path):
    with pytest.raises(ConfigError, match=f"--on ray: one could not read and write in {tmp_path}"):
        check_nodes(OtherDisk(PLACE), tmp_path, never)
    assert not list(tmp_path.iterdir())


def test_other_versions_on_a_node_are_a_line(tmp_path):
    cluster = OtherVersions(PLACE)
    cluster.packages = tmp_path / "packages"
    found = cluster.packages / "numpy-0.0.1.dist-info"
    found.mkdir(parents=True)
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.0.1\n")
    study = tmp_path / "study"
    study.mkdir()
    with pytest.raises(ConfigError, match=r"has numpy 0\.0\.1, and this process .*: install the"):
        check_nodes(cluster, study, never)


def test_who_is_asked_to_stop_asks_no_further_node(tmp_path):
    cluster = Processes(PLACE)
    assert check_nodes(cluster, tmp_path, lambda: True) == []
    assert len(cluster.submitted) == 1
