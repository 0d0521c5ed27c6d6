"""What a process must not send, by what it has itself observed: no answer of the API server shows it, and time may heal it."""

from typing import Any

from core.names import HOSTNAME_LABEL, TOPOLOGY_GATE, WORKLOAD_ANNOTATION
from core.plan.workloads.workload_steps import may_run
from e2e.standins.pods import has_condition
from reconciler.observe.observed import Observed
from sim.apiserver.server import Request
from sim.models.base import POD, get_controller, is_over

Json = dict[str, Any]


def find_wrong_delete(observed: Observed, request: Request, pod: Json) -> str:
    """A sentence without its subject where a pod is deleted that is to be ended as `Failed`, so that a podFailurePolicy can match
    (KEP-2724): it was pinned to a node that is lost now, and was never bound. Empty otherwise."""
    if request.kind.resource != POD or request.verb != "delete" or not pod:
        return ""
    metadata, spec = pod["metadata"], pod["spec"]
    host = (spec.get("nodeSelector") or {}).get(HOSTNAME_LABEL)
    is_waiting = not (spec.get("nodeName") or spec.get("schedulingGates") or metadata.get("deletionTimestamp") or is_over(pod))
    workload = observed.workloads.store.get(f"{metadata['namespace']}/{(metadata.get('annotations') or {}).get(WORKLOAD_ANNOTATION)}")
    if not host or not is_waiting or workload is None or not may_run(workload) or (get_controller(pod) or {}).get("kind") != "Job":
        return ""
    return "" if _is_up(observed, host) else f"deletes pod {metadata['name']}, which waits for host {host}, which is lost"


def find_wrong_ungating(observed: Observed, request: Request) -> tuple[str, str]:
    """A host that a pod is sent to though the process knows that it is not ready, and a sentence without its subject; empty otherwise."""
    if request.kind.resource != POD or request.verb != "patch" or request.subresource or not isinstance(request.body, dict):
        return "", ""
    spec = request.body.get("spec") or {}
    is_ungated = any(gate.get("name") == TOPOLOGY_GATE and "$patch" in gate for gate in spec.get("schedulingGates") or ())
    host = (spec.get("nodeSelector") or {}).get(HOSTNAME_LABEL, "")
    if not is_ungated or not host or _is_up(observed, host):
        return "", ""
    return host, f"ungates pod {request.name} onto host {host}, which is not ready"


def _is_up(observed: Observed, host: str) -> bool:
    """Whether a node of a hostname is ready, as the process knows."""
    nodes = observed.nodes.store
    found = [nodes.get(host), *nodes.list_by_index("hostname", host)]
    return any(node is not None and has_condition(node, "Ready") for node in found)
