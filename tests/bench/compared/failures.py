"""Case (f): five of a hundred nodes fail in one second under running jobs."""

from __future__ import annotations

from e2e.cluster import Cluster
from tests.bench.compared.managers import Measured, Window, make_manager
from tests.bench.compared.rig import wait_until_active
from tests.bench.node_failures import NAMESPACE, QUOTAS, build_pool, fail_nodes, run_jobs
from tests.bench.parts.one_queue import open_queue

JOBS_OF_A_NODE, SHARE = 0.5, 0.05


def measure_failures(subject: str, nodes: int) -> Measured:
    """One run on a new control plane. Raises TimeoutError."""
    pool = build_pool(nodes)
    with Cluster() as cluster:
        names = cluster.add_nodes(pool, timeout_s=600)
        with make_manager(subject, cluster) as manager:
            open_queue(cluster, pool, NAMESPACE, QUOTAS)
            wait_until_active(cluster)
            before = run_jobs(cluster.api, round(nodes * JOBS_OF_A_NODE))
            window = Window(cluster, manager)
            row = fail_nodes(cluster, names, before, SHARE)
            figures = {
                "until all are whole or evicted, s": row["settled_s"],
                "workloads evicted": row["evicted"],
                "workloads that have lost a pod": row["affected"],
                "pods of other nodes that are gone": row["healthy_pods_gone"],
                "rules broken (`e2e.audit.recount`)": len(row["broken"]),
            }
            return window.close(row["pods_lost"], figures)
