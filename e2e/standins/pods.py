"""What controllers that make their pods themselves have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from e2e.standins.base import StandIn, get_pods_path

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
    """Makes the pods of an object that is not suspended, and deletes those of one that is, and those that it has no use for any more.

    Nothing of a pod is ever changed: what a template says when its pod is made, the pod has. `grace_s` is how long a pod may take to end,
    None where that is left to the pod.
    """

    suspend_path: ClassVar[tuple[str, ...]] = ("spec", "suspend")
    grace_s: int | None = 0

    @abstractmethod
    def wanted(self, obj: Obj, pods: Mapping[str, Obj]) -> Iterable[Wanted]:
        """The pods of an object, of which some are there."""

    @abstractmethod
    def status(self, obj: Obj, wanted: Iterable[Wanted], pods: Mapping[str, Obj]) -> Obj:
        """What the controller reports."""

    def reconcile(self, obj: Obj) -> None:
        if obj["metadata"].get("deletionTimestamp"):
            return
        path, suspended = get_pods_path(obj), self.is_suspended(obj)
        mine = self.find_pods(obj)
        wanted = list(self.wanted(obj, mine))
        if self.is_over(obj):
            if self.cleans_up(obj):
                self._delete(path, [name for name, pod in mine.items() if not _has_ended(pod)])
            return
        for each in wanted:
            if not suspended and each.name not in mine:
                pod = self.pod(obj, each.name, each.template, each.labels)
                pod["metadata"]["labels"][MADE_FOR] = obj["metadata"]["uid"]
                pod["metadata"]["ownerReferences"] = [dict(each.owner or self.owner_of(obj))]
                mine[each.name] = self.api.create(path, pod)
        names = {each.name for each in wanted}
        self._delete(path, [name for name in mine if suspended or name not in names])
        kept = {name: pod for name, pod in mine.items() if not suspended and name in names and not pod["metadata"].get("deletionTimestamp")}
        self.set_status(obj, self.status(obj, wanted, kept))

    def _delete(self, path: str, names: Iterable[str]) -> None:
        for name in names:
            self.api.delete(f"{path}/{name}", grace_period_s=self.grace_s)

    def find_pods(self, obj: Obj) -> dict[str, Obj]:
        """The pods that were made for an object, by name."""
        return {pod["metadata"]["name"]: pod for pod in self.api.list(get_pods_path(obj)) if _is_made_for(pod, obj)}

    def is_over(self, obj: Obj) -> bool:
        """Whether the status says that an object has finished."""
        return has_condition(obj, "Succeeded") or has_condition(obj, "Failed")

    def cleans_up(self, obj: Obj) -> bool:
        """Whether the pods of a finished object that still run are deleted."""
        return (obj["spec"].get("runPolicy") or {}).get("cleanPodPolicy") in ("Running", "All")

    def is_suspended(self, obj: Obj) -> bool:
        found: Any = obj
        for key in self.suspend_path:
            found = (found or {}).get(key)
        return bool(found)


MADE_FOR = "e2e.topogate.dev/made-for"


def _is_made_for(pod: Mapping[str, Any], obj: Mapping[str, Any]) -> bool:
    return bool((pod["metadata"].get("labels") or {}).get(MADE_FOR) == obj["metadata"]["uid"])


def _has_ended(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def has_condition(obj: Mapping[str, Any], kind: str) -> bool:
    """Whether a condition of an object is true."""
    return any(c["type"] == kind and c["status"] == "True" for c in (obj.get("status") or {}).get("conditions") or ())


def compute_phase(pods: Iterable[Mapping[str, Any]]) -> str:
    """Succeeded once all pods have, Failed once one has, else Running."""
    phases = {str((pod.get("status") or {}).get("phase")) for pod in pods}
    return "Failed" if "Failed" in phases else "Succeeded" if phases == {"Succeeded"} else "Running"


def build_condition(kind: str, message: str) -> Obj:
    return {"type": kind, "status": "True", "reason": kind, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}
