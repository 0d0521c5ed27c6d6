"""A node that flaps, and a network that takes most of them away for a while: what runs must not notice. In real seconds.

    python -m tests.bench.storm [--nodes 50] [--jobs 30] [--flap 10] [--away 90] [--share 0.6] [--json]

Jobs of three pods that require a rack run on the real control plane. Then one of their nodes is not ready for `flap` seconds, and after
that the share of all nodes, drawn at random, for `away` seconds; pods run on, as they do where only the kubelet cannot be heard. Of all
that the API server told meanwhile it is counted how many workloads were evicted, how many got another place or had a node called lost, how
many pods ended, went or moved; and for how long the Topology told a storm. Ends with status 1 where anything is not as it was before.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from core.names import EVENT_NODE_UNHEALTHY, EVENT_POD_OUTSIDE_ASSIGNMENT, EVENT_POD_TERMINATED, NODES_REACHABLE
from e2e.api import Api, wait_for
from e2e.audit.history import History, PodFact, WorkloadFact
from e2e.audit.recount import recount
from e2e.audit.truth import get_condition
from e2e.binaries import ensure_binaries
from e2e.cluster import Cluster
from e2e.nodes import NodePool, is_schedulable
from e2e.topogate import Topogate
from tests.bench.node_failures import NAMESPACE, PODS_OF_A_JOB, QUOTAS, SEED, placed, submit
from tests.bench.parts.one_queue import open_queue

_AT_ONCE, _PATIENCE_S, _LOOK_S = 16, 300.0, 1.0
_WORKLOADS = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads"
_TOPOLOGY = f"/apis/kueue.x-k8s.io/v1beta2/topologies/{NAMESPACE}"
_EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
_NOTHING_OF = ("evictions", "replacements", "pods_touched", "nodes_called_lost")
_TELLING = (EVENT_NODE_UNHEALTHY, EVENT_POD_TERMINATED, EVENT_POD_OUTSIDE_ASSIGNMENT)


def measure(nodes: int, jobs: int, flap_s: float, away_s: float, share: float) -> list[dict[str, Any]]:
    """A row for each of the two."""
    pool = NodePool(max(1, nodes // 50), 5, max(1, min(10, nodes // 5)), labels={"pool": NAMESPACE})
    with Cluster() as cluster, Topogate(cluster, leader_election=False):
        names = cluster.add_nodes(pool, timeout_s=600)
        open_queue(cluster, pool, NAMESPACE, QUOTAS)
        for number in range(jobs):
            submit(cluster.api, f"job-{number:04}")
        wait_for("all jobs to run", lambda: len(placed(cluster.api)) == jobs * PODS_OF_A_JOB, _PATIENCE_S, poll_s=1)
        used = sorted({pod["spec"]["nodeName"] for pod in placed(cluster.api).values()})
        chosen = sorted(random.Random(SEED).sample(names, int(share * len(names))))
        return [_take_away(cluster, "flap", used[:1], flap_s), _take_away(cluster, "storm", chosen, away_s)]


def _take_away(cluster: Cluster, what: str, nodes: Sequence[str], seconds: float) -> dict[str, Any]:
    """Nodes are not ready for a time, and well again."""
    before, told = _stand(cluster.api), _count_told(cluster.api)
    hit = sum(pod["spec"]["nodeName"] in nodes for pod in placed(cluster.api).values())
    with History(cluster, NAMESPACE) as history:
        began = time.monotonic()
        _set_ready(cluster, nodes, ready=False)
        in_storm = 0.0
        while (now := time.monotonic()) - began < seconds:
            in_storm += _LOOK_S * _is_storm(cluster.api)
            time.sleep(min(_LOOK_S, began + seconds - now))
        _set_ready(cluster, nodes, ready=True)
        away_s = time.monotonic() - began
        wait_for("the nodes to take pods again", lambda: _are_well(cluster.api, nodes), _PATIENCE_S)
        wait_for("the storm to be over", lambda: not _is_storm(cluster.api), _PATIENCE_S)
        time.sleep(3.0)  # for what somebody may have put off until now
        facts = history.facts()
    where = {uid: node for _, pods in before.values() for uid, node in pods.items()}
    bound = [fact for fact in facts if isinstance(fact, PodFact) and fact.uid in where]
    changes = {fact.name for fact in facts if isinstance(fact, WorkloadFact) and fact.admission is not None}
    return {
        "what": what,
        "nodes_away": len(nodes),
        "pods_on_them": hit,
        "away_s": round(away_s, 1),
        "told_as_storm_s": in_storm,
        "evictions": len({fact.name for fact in facts if isinstance(fact, WorkloadFact) and fact.evicted}),
        "replacements": len([name for name in changes if len(_admissions(facts, name)) > 1]),
        "pods_touched": len({fact.uid for fact in bound if fact.ended or fact.gone or fact.node != where[fact.uid]}),
        "nodes_called_lost": _count_told(cluster.api) - told,
        "as_before": _stand(cluster.api) == before,
        "broken": recount(cluster.api),
    }


def _admissions(facts: Sequence[Any], workload: str) -> set[str]:
    return {repr(fact.admission) for fact in facts if isinstance(fact, WorkloadFact) and fact.name == workload}


def _stand(api: Api) -> dict[str, tuple[Any, dict[str, str]]]:
    """Per job what it was given, and where its pods are, by uid."""
    pods: dict[str, dict[str, str]] = {}
    for pod in placed(api).values():
        pods.setdefault(pod["metadata"]["ownerReferences"][0]["name"], {})[pod["metadata"]["uid"]] = pod["spec"]["nodeName"]
    found = {}
    for workload in api.list(_WORKLOADS):
        job, status = workload["metadata"]["ownerReferences"][0]["name"], workload.get("status") or {}
        found[job] = ((status.get("admission"), status.get("unhealthyNodes")), pods.get(job, {}))
    return found


def _is_storm(api: Api) -> bool:
    return get_condition(api.get(_TOPOLOGY), NODES_REACHABLE).get("status") == "False"


def _count_told(api: Api) -> int:
    return sum(event["reason"] in _TELLING for event in api.list(_EVENTS))


def _are_well(api: Api, nodes: Sequence[str]) -> bool:
    return all(is_schedulable(node) for node in api.list("/api/v1/nodes") if node["metadata"]["name"] in nodes)


def _set_ready(cluster: Cluster, nodes: Sequence[str], *, ready: bool) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(lambda name: cluster.set_node_ready(name, ready=ready), nodes))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--flap", type=float, default=10.0)
    parser.add_argument("--away", type=float, default=90.0)
    parser.add_argument("--share", type=float, default=0.6)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ensure_binaries()
    rows = measure(options.nodes, options.jobs, options.flap, options.away, options.share)
    if options.json:
        json.dump(rows, sys.stdout)
        print()
    else:
        for name in rows[0]:
            print(f"{name:20} {rows[0][name]!s:>10} {rows[1][name]!s:>10}")
    quiet = all(row["as_before"] and not row["broken"] and not any(row[name] for name in _NOTHING_OF) for row in rows)
    return 0 if quiet and rows[1]["told_as_storm_s"] else 1


if __name__ == "__main__":
    sys.exit(main())
