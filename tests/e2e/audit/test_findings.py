"""What is told of a control plane when a test on it fails."""

from __future__ import annotations

import pytest

from e2e.api import wait_for
from e2e.audit.findings import describe_cluster
from e2e.cluster import Cluster
from e2e.nodes import NodePool
from e2e.process import kill


def test_it_names_the_node_that_takes_nothing_and_the_pod_that_waits(cluster: Cluster, namespace: str) -> None:
    (node,) = cluster.add_nodes(NodePool(blocks=1, racks=1, nodes=1, prefix="told-"))
    try:
        # One patch for both: kube-scheduler, which may see the pod before it, finds no node for it until then.
        cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"told": node}}, "spec": {"unschedulable": True}})
        spec = {"nodeSelector": {"told": node}, "containers": [{"name": "c", "image": "registry.example/c:1"}]}
        cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "lost"}, "spec": spec})

        wanted = ("every part runs", f"{node}: Ready True", f"{namespace}/lost, made", "node(s) were unschedulable")
        wait_for("it to say so", lambda: all(part in describe_cluster(cluster) for part in wanted))
        assert "the end of kube-scheduler.log:" in describe_cluster(cluster)
    finally:
        cluster.delete_nodes([node])


@pytest.mark.cluster
def test_a_part_that_ended_is_named_and_a_server_that_is_gone_is_no_second_failure() -> None:
    with Cluster() as own:
        kill(own.pids["kube-apiserver"])
        wait_for("its end to be seen", lambda: own.ended)
        said = describe_cluster(own)
    assert "ended: kube-apiserver" in said
    assert "the API server does not answer" in said
