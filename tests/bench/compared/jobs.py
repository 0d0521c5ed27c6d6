"""Case (b): real Jobs of 1 to 128 pods, from apply to pods that are bound, run and end."""

from __future__ import annotations

from e2e.cluster import Cluster
from tests.bench.cluster import QUIET_KWOK, QUIET_MANAGER, open_queues, play
from tests.bench.compared.managers import Measured, Window, make_manager
from tests.bench.compared.rig import wait_until_active
from tests.bench.parts.cluster_load import Load


def measure_jobs(subject: str, load: Load) -> Measured:
    """One run on a new control plane. Raises Stuck where nothing gets on any more."""
    with Cluster(kwok_flags=QUIET_KWOK, controller_manager_flags=QUIET_MANAGER) as cluster:
        cluster.add_nodes(load.pool, timeout_s=600)
        with make_manager(subject, cluster) as manager:
            open_queues(cluster, load)
            wait_until_active(cluster)
            window = Window(cluster, manager)
            row = play(cluster, manager.pids, load, load.plan())
            figures: dict[str, float] = {"all over after, s": row["lasted_s"]}
            for name, waits in row["waits"].items():
                (half, most), longest = waits["to_bound_s"], waits["longest_s"]
                shown = {"p50": half, "p99": most, "longest": longest}
                figures |= {f"apply to bound, {name}, {which}, s": seconds for which, seconds in shown.items()}
            figures |= {
                "GPUs in use, %": round(100 * row["in_use"], 1),
                "GPUs in use and asked for, %": round(100 * row["asked"], 1),
                "racks without a pod": row["free_racks"],
                "evictions": row["evictions"],
                "promises broken (`e2e.audit`)": len(row["broken"]),
            }
            return window.close(row["jobs"], figures)
