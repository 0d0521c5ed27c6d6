"""A stand-in for the AppWrapper controller (workload.codeflare.dev/v1beta2)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from e2e.manifests import get_path as path_of
from e2e.standins.base import StandIn
from e2e.standins.pods import Obj, build_condition, has_condition

# Where kinds that it knows hold their pod templates, in the order of their pod sets.
_TEMPLATES = {
    "PyTorchJob": (
        ("spec", "pytorchReplicaSpecs", "Master", "template"),
        ("spec", "pytorchReplicaSpecs", "Worker", "template"),
    ),
    "LeaderWorkerSet": (
        ("spec", "leaderWorkerTemplate", "leaderTemplate"),
        ("spec", "leaderWorkerTemplate", "workerTemplate"),
    ),
    **dict.fromkeys(("Job", "Deployment", "StatefulSet"), (("spec", "template"),)),
    "Pod": ((),),
}


class AppWrapperStandIn(StandIn):
    """Makes its components, with what their pod set infos say on their templates, and deletes them when it is suspended or has failed."""

    group, version, kind, plural = "workload.codeflare.dev", "v1beta2", "AppWrapper", "appwrappers"

    def reconcile(self, obj: Obj) -> None:
        phase = (obj.get("status") or {}).get("phase")
        if obj["metadata"].get("deletionTimestamp") or phase == "Succeeded":
            return
        outcomes = list[str]()
        suspended, deployed = bool(obj["spec"].get("suspend")) or phase == "Failed", False
        for component in obj["spec"]["components"]:
            wrapped = _with_infos(component)
            wrapped["metadata"] |= {"namespace": obj["metadata"]["namespace"], "ownerReferences": [self.owner_of(obj)]}
            path = path_of(wrapped)
            there = self.api.find(f"{path}/{wrapped['metadata']['name']}")
            deployed |= there is not None or not suspended
            outcomes.append(_get_outcome(there or {}))
            if suspended and there is not None:
                self.api.request("DELETE", f"{path}/{wrapped['metadata']['name']}?propagationPolicy=Background")
            elif not suspended and there is None:
                self.api.create(path, wrapped)
        if phase == "Failed":
            return
        phase = "Failed" if "Failed" in outcomes else "Succeeded" if set(outcomes) == {"Succeeded"} else "Running"
        status: Obj = {"phase": "Suspended" if suspended else phase}
        if deployed:
            status["conditions"] = [build_condition("ResourcesDeployed", "components are deployed")]
        elif (obj.get("status") or {}).get("conditions"):
            status["conditions"] = []
        self.set_status(obj, status)


def _get_outcome(component: Obj) -> str:
    """How a component ended, empty where it has not."""
    if component.get("kind") == "Pod":
        return str((component.get("status") or {}).get("phase"))
    ends = {"Complete": "Succeeded", "Succeeded": "Succeeded", "Failed": "Failed"}
    return next((ends[kind] for kind in ends if has_condition(component, kind)), "")


def _with_infos(component: Obj) -> Obj:
    wrapped: Obj = deepcopy(component["template"])
    for path, info in zip(_TEMPLATES[wrapped["kind"]], component.get("podSetInfos") or (), strict=False):
        template: Any = wrapped
        for key in path:
            template = template[key]
        metadata, spec = template.setdefault("metadata", {}), template["spec"]
        for name, value in info.items():
            place = metadata if name in ("labels", "annotations") else spec
            if isinstance(value, dict):
                place[name] = {**(place.get(name) or {}), **value}
            else:
                place[name] = [*(place.get(name) or []), *value]
    return wrapped
