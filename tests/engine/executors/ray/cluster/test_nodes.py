"""Which nodes have room, and which are avoided, as of made-up answers of the head."""

from typing import Any

import pytest

import gristmill as gm
from gristmill._engine.executors.ray.cluster.nodes import ClusterNodes, ClusterView


def view_of(*cpus: float, available: float = 0.0) -> ClusterView:
    nodes: list[dict[str, Any]] = [
        {
            "Alive": True,
            "NodeID": f"n{number}",
            "NodeManagerAddress": f"10.0.0.{number}",
            "Resources": {"CPU": cpu},
        }
        for number, cpu in enumerate(cpus)
    ]
    return ClusterView(nodes, {"CPU": available}, asked_at=0.0)


def test_actors_without_room_are_explained_and_others_are_not():
    nodes = ClusterNodes(gm.RayOptions())
    message = nodes.explain_missing(view_of(2.0, 1.5), 16)

    assert message.startswith(
        "The Ray cluster has room for 3 of 16 actors: each needs CPU 1, and 10.0.0.0 has CPU 2; "
        "10.0.0.1 has CPU 1.5."
    )
    assert nodes.explain_missing(view_of(2.0, 1.5), 3) == ""


def test_a_lost_node_is_avoided_if_others_have_room():
    nodes = ClusterNodes(gm.RayOptions())
    nodes.lose("n0")

    assert nodes.avoided(view_of(2.0, 2.0)) == {"n0"}
    assert nodes.avoided(view_of(2.0, 0.5)) == set()
    assert nodes.avoided(None) == set()


def test_a_node_with_other_versions_is_an_error_if_it_is_the_only_one():
    nodes = ClusterNodes(gm.RayOptions())
    assert nodes.refusal_error(view_of(2.0)) is None
    nodes.refuse({"node": "10.0.0.0", "node_id": "n0", "NumPy": "1.0"}, {"NumPy": "2.0"})

    assert nodes.avoided(view_of(2.0, 2.0)) == {"n0"}
    assert nodes.refusal_error(view_of(2.0, 2.0)) is None
    with pytest.raises(gm.errors.WorkerError, match=r"10.0.0.0 has NumPy 1.0 instead of 2.0"):
        raise nodes.refusal_error(view_of(2.0)) or AssertionError


def test_a_cluster_is_full_if_nothing_is_free():
    nodes = ClusterNodes(gm.RayOptions(num_cpus=0.5))

    assert nodes.is_full(view_of(2.0, available=0.25))
    assert not nodes.is_full(view_of(2.0, available=0.5))
