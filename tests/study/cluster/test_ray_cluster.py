"""What is asked of Ray, without Ray: its nodes by name, and that it is gone."""

from types import SimpleNamespace
from typing import Any

import pytest

from sublayer.study.cluster.cluster import ClusterGone, Node
from sublayer.study.cluster.schedulers.ray_broker import _Broker
from sublayer.study.cluster.schedulers.ray_cluster import RayCluster

NODES = [
    {
        "NodeID": number * 56,
        "NodeManagerHostname": host,
        "Alive": host != "third",
        "Resources": {"CPU": 4.0, "memory": 1e9},
    }
    for number, host in (("a", "first"), ("b", "second"), ("c", "third"))
]


class Answering(RayCluster):
    """Ray as its broker answers."""

    def __init__(self, answer: dict[str, Any] | None) -> None:
        self.name = "ray:10.0.0.1:6379"
        self._answer = answer

    def _exchange(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        return self._answer


def test_nodes_have_the_names_of_their_machines_and_are_probed_by_their_ids():
    broker = object.__new__(_Broker)
    broker._ray = SimpleNamespace(nodes=lambda: NODES)
    cluster = Answering({"answer": broker.nodes()})
    assert cluster.nodes()[0] == Node("first", 4, 10**9, identity="a" * 56)
    assert cluster.probed() == {"a" * 56: "first", "b" * 56: "second"}


def test_a_cluster_without_an_answer_is_gone():
    with pytest.raises(
        ClusterGone, match="the cluster is gone .its connection was lost.; what ran"
    ):
        Answering(None).active(["sublayer one"])


def test_an_actor_is_found_by_its_name():
    assert Answering({"answer": ["sublayer one"]}).find("sublayer one") == "sublayer one"
    assert Answering({"answer": []}).find("sublayer one") is None
