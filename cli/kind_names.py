"""Kinds as people write them: in lower case, in the plural, with their group, or short as for kubectl."""

from collections.abc import Sequence

from core.plan.steps import api_resources as r
from core.resource import Resource

WORKLOAD = ("workload", "workloads", "wl", "workload.kueue.x-k8s.io", "workloads.kueue.x-k8s.io")
SHORT = {"po": "pod", "sts": "statefulset", "lws": "leaderworkerset", "deploy": "deployment"}
POD_GROUP = ("podgroup", "podgroups")
BESIDE = {"cq": r.CLUSTER_QUEUES, "lq": r.LOCAL_QUEUES, "no": r.NODES, "cj": r.CRON_JOBS, "deploy": r.DEPLOYMENTS}
"""Kinds that are explained by a report of their own, by their short names."""


def list_kind_names(resource: Resource) -> Sequence[str]:
    """Returns the names of a kind as kubectl accepts and prints them: `job`, `jobs`, and both with their group."""
    names = (resource.kind.lower(), resource.plural)
    return (*names, *(f"{name}.{resource.group}" for name in names)) if resource.group else names


def find_resource_beside(kind: str) -> Resource | None:
    """Returns the resource that a kind means as people write it, of those that have a report of their own: ClusterQueue, LocalQueue, Node,
    CronJob and Deployment. None for another kind."""
    called = {name: resource for short, resource in BESIDE.items() for name in (short, *list_kind_names(resource))}
    return called.get(kind)
