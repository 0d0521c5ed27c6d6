"""What controllers that make their pods themselves have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from e2e.standins.base import StandIn, pods_path

Obj = dict[str, Any]


@dataclass(frozen=True)
class Wanted:
    """A pod that an object should have."""

    name: str
    template: Mapping[str, Any]
    labels: Mapping[str, str]
    role: str = ""
    owner: Mapping[str, Any] | None = field(default=None)  # the object itself where none is given


class PodStandIn(StandIn):
    """Makes the pods of an object that is not suspended, and deletes those of one that is.

    Nothing of a pod is ever changed: what a template says when its pod is made, the pod has.
    """

    suspend_path: ClassVar[tuple[str, ...]] = ("spec", "suspend")

    @abstractmethod
    def wanted(self, obj: Obj, pods: Mapping[str, Obj]) -> Iterable[Wanted]:
        """The pods of an object, of which some are there."""

    @abstractmethod
    def status(self, obj: Obj, wanted: Iterable[Wanted], pods: Mapping[str, Obj]) -> Obj:
        """What the controller reports."""

    def reconcile(self, obj: Obj) -> None:
        if obj["metadata"].get("deletionTimestamp"):
            return
        path, suspended = pods_path(obj), self.is_suspended(obj)
        mine = {pod["metadata"]["name"]: pod for pod in self.api.list(path) if _belongs(pod, obj)}
        wanted = list(self.wanted(obj, mine))
        for each in wanted:
            if not suspended and each.name not in mine:
                pod = self.pod(obj, each.name, each.template, each.labels)
                pod["metadata"]["labels"][MADE_FOR] = obj["metadata"]["uid"]
                pod["metadata"]["ownerReferences"] = [dict(each.owner or self.owner_of(obj))]
                mine[each.name] = self.api.create(path, pod)
        for name in [name for name in mine if suspended]:
            self.api.delete(f"{path}/{name}", grace_period_s=0)
            del mine[name]
        self.set_status(obj, self.status(obj, wanted, mine))

    def is_suspended(self, obj: Obj) -> bool:
        found: Any = obj
        for key in self.suspend_path:
            found = (found or {}).get(key)
        return bool(found)


MADE_FOR = "e2e.topogate.dev/made-for"


def _belongs(pod: Mapping[str, Any], obj: Mapping[str, Any]) -> bool:
    return bool((pod["metadata"].get("labels") or {}).get(MADE_FOR) == obj["metadata"]["uid"])


def phase_of(pods: Iterable[Mapping[str, Any]]) -> str:
    """Succeeded once all pods have, Failed once one has, else Running."""
    phases = {str((pod.get("status") or {}).get("phase")) for pod in pods}
    return "Failed" if "Failed" in phases else "Succeeded" if phases == {"Succeeded"} else "Running"


def condition(kind: str, message: str) -> Obj:
    return {"type": kind, "status": "True", "reason": kind, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}
