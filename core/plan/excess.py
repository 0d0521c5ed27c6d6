"""Pods that request more than the pods of their pod set were admitted with: a container was added after the job was counted."""

from core.model.quantity import format_quantity
from core.model.resources import Resources

# Requests of the init containers that KubeRay (`wait-gcs-ready`) and the training operator (`init-pytorch`) add, in canonical units:
# pods with containers that request less have these instead, and stop having them before they work.
OF_CONTROLLERS: Resources = {"cpu": 200, "memory": 256 << 20}


def explain_excess(asked: Resources, admitted: Resources, pod_set: str) -> str:
    """What a pod requests beyond what was admitted of one pod of a pod set, and what to do; empty where it is nothing."""
    more = {name: amount - admitted.get(name, 0) for name, amount in sorted(asked.items()) if amount > admitted.get(name, 0)}
    if not more:
        return ""
    shown = ", ".join(f"{format_quantity(name, amount)} {name}" for name, amount in more.items())
    return (
        f"the pod requests {shown} more than the pods that were admitted as {pod_set}, and stays gated. If an admission webhook "
        "added a container (a sidecar), add what it requests to the pod template, or exempt these pods from that webhook; "
        "else delete the pod"
    )
