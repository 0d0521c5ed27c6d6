"""Who sits where, from what the API server has; drawn as `topogate topology` draws it."""

from __future__ import annotations

from collections import defaultdict

from cli.reporting.picture import FOREIGN, Row, Seats, make_natural_key, render_seats, to_svg
from core.model.pod_resources import compute_pod_requests
from core.names import WORKLOAD_ANNOTATION
from e2e.audit.truth import Snapshot, is_terminal

__all__ = ["GPU", "find_seats", "render_seats", "to_svg"]

GPU = "nvidia.com/gpu"


def find_seats(snapshot: Snapshot, block_label: str, rack_label: str) -> Seats:
    """Who holds which GPUs, by the pods that are bound."""
    tree: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    owners: dict[str, list[str | None]] = {}
    for name, node in sorted(snapshot.nodes.items(), key=lambda item: make_natural_key(item[0])):
        labels = node["metadata"]["labels"]
        tree[labels.get(block_label, "?")][labels.get(rack_label, "?")].append(name)
        owners[name] = []
    job_of = {
        f"{w['metadata']['namespace']}/{w['metadata']['name']}": owner["name"]
        for w in snapshot.workloads
        for owner in w["metadata"].get("ownerReferences") or ()
    }
    for pod in snapshot.pods:
        node_name = pod["spec"].get("nodeName")
        if node_name in owners and not is_terminal(pod):
            workload = (pod["metadata"].get("annotations") or {}).get(WORKLOAD_ANNOTATION, "")
            job = job_of.get(f"{pod['metadata']['namespace']}/{workload}", FOREIGN)
            owners[node_name] += [job] * compute_pod_requests(pod["spec"]).get(GPU, 0)
    for name, held in owners.items():
        size = int(snapshot.nodes[name]["status"]["allocatable"].get(GPU, 0))
        held += [None] * (size - len(held))
    blocks = {
        f"block {block}": [Row(rack, tree[block][rack]) for rack in sorted(tree[block], key=make_natural_key)]
        for block in sorted(tree, key=make_natural_key)
    }
    return Seats(blocks, owners)
