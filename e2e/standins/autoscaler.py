"""A stand-in for an autoscaler that serves ProvisioningRequests (autoscaling.x-k8s.io/v1), and for the kind itself.

What it answers is a test's to say, by provisioning class: nodes that are there at once or only later, too few of them, nodes in
the wrong racks, or none at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from e2e.api import Api, ApiError
from e2e.standins.base import StandIn

Obj = dict[str, Any]
_EXISTS = 409
_SINCE = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Nodes:
    """These nodes are made, and the request is Provisioned. Not `ready`: they come NotReady, and stay so until they are set ready."""

    objects: Sequence[Obj] = ()
    ready: bool = True
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Refusal:
    """The request is Failed."""

    message: str


@dataclass(frozen=True)
class Eta:
    """It is accepted, and still to be provisioned."""

    message: str


Answer = Nodes | Refusal | Eta


class AutoscalerStandIn(StandIn):
    """Answers each request by `answers`, a function for each provisioning class; `asked` has every request that there ever was."""

    group, version, kind, plural = "autoscaling.x-k8s.io", "v1", "ProvisioningRequest", "provisioningrequests"

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.answers: dict[str, Callable[[Obj], Answer]] = {}
        self.asked: dict[str, Obj] = {}  # by uid

    def asked_for(self, class_name: str) -> list[Obj]:
        """Every request of a class that there ever was, in the order in which they came."""
        return [request for request in list(self.asked.values()) if request["spec"]["provisioningClassName"] == class_name]

    def reconcile(self, obj: Obj) -> None:
        self.asked.setdefault(obj["metadata"]["uid"], obj)
        answer = self.answers.get(obj["spec"]["provisioningClassName"])
        if answer is None or obj["metadata"].get("deletionTimestamp") or _is_over(obj):
            return
        match answer(obj):
            case Nodes(objects, ready, details):
                for node in objects:
                    self._make(node, ready=ready)
                self._say(obj, {"Accepted": "accepted", "Provisioned": "nodes are there"}, dict(details))
            case Refusal(message):
                self._say(obj, {"Accepted": "accepted", "Failed": message})
            case Eta(message):
                conditions = [_build_condition("Accepted", "True", "accepted"), _build_condition("Provisioned", "False", message)]
                self.set_status(obj, {"conditions": conditions})

    def _make(self, node: Obj, *, ready: bool) -> None:
        if not ready:
            # A reason by which the simulated kubelet leaves it alone (e2e/stages/node.yaml).
            condition = {"type": "Ready", "status": "False", "reason": "E2EFailed"}
            node = {**node, "status": {**node["status"], "conditions": [condition]}}
        try:
            self.api.create("/api/v1/nodes", node)
        except ApiError as error:
            if error.status != _EXISTS:
                raise

    def say(self, name: str, namespace: str, kind: str, message: str) -> None:
        """Adds a condition to a request."""
        request = self.api.get(f"{self.path}/namespaces/{namespace}/{self.plural}/{name}")
        known = {c["type"]: c for c in (request.get("status") or {}).get("conditions") or ()}
        conditions = [*(c for c in known.values() if c["type"] != kind), _build_condition(kind, "True", message)]
        self.set_status(request, {"conditions": conditions})

    def _say(self, obj: Obj, messages: Mapping[str, str], details: Mapping[str, str] | None = None) -> None:
        conditions = [_build_condition(kind, "True", message) for kind, message in messages.items()]
        self.set_status(obj, {"conditions": conditions} | ({"provisioningClassDetails": dict(details)} if details else {}))


def _build_condition(kind: str, status: str, message: str) -> Obj:
    return {"type": kind, "status": status, "reason": kind, "message": message, "lastTransitionTime": _SINCE}


def _is_over(obj: Obj) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c["type"] in ("Provisioned", "Failed") and c["status"] == "True" for c in conditions)
