"""A stand-in controller: a CustomResourceDefinition, and a loop that looks at all objects again and again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Self

from e2e.api import Api, ApiError, wait_for
from e2e.clock import CLOCK
from e2e.crds import CRDS, is_established, remove_crds
from e2e.standins.rights import act_as_operator

POLL_S = 0.2
_COME_AGAIN = (404, 409, 422)  # changed or gone since it was seen, or nothing the API server takes: tried again and again


class StandIn(ABC):
    """Used as a context manager; what its loop raised is raised at the end. It acts with the rights of the operator."""

    group: ClassVar[str]
    version: ClassVar[str]
    kind: ClassVar[str]
    plural: ClassVar[str]

    def __init__(self, api: Api) -> None:
        self.api = self._administrator = api
        self._failure: BaseException | None = None
        self._stop: Callable[[], None] = lambda: None

    @abstractmethod
    def reconcile(self, obj: dict[str, Any]) -> None:
        """Takes an object one step further; called again and again."""

    @property
    def path(self) -> str:
        return f"/apis/{self.group}/{self.version}"

    @classmethod
    def definitions(cls) -> list[dict[str, Any]]:
        """Of its kind, first, and of what that kind cannot do without."""
        return [build_crd(cls.group, cls.version, cls.kind, cls.plural)]

    def install(self) -> None:
        """Registers its kinds and waits until they are served."""
        api = self._administrator
        for definition in self.definitions():
            name, plural = definition["metadata"]["name"], definition["spec"]["names"]["plural"]
            if api.find(f"{CRDS}/{name}") is None:
                api.create(CRDS, definition)
            wait_for(f"{name} to be served", partial(is_established, api, name))
            wait_for(f"{self.path} to answer", partial(api.find, f"{self.path}/{plural}"))

    def uninstall(self) -> None:
        """Takes its kinds away again, with all of their objects."""
        remove_crds(self._administrator, [definition["metadata"]["name"] for definition in self.definitions()])

    def __enter__(self) -> Self:
        self.install()
        if self._administrator.judges_rights:
            self.api = act_as_operator(self._administrator, self.kind) or self._administrator
        self._stop = CLOCK.repeat(self._look_at_all, POLL_S, f"stand-in for {self.kind}")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        if self.api is not self._administrator:
            self.api.close()
            self.api = self._administrator
        if self._failure is not None:
            raise self._failure

    def _look_at_all(self) -> bool:
        """Whether it may do so again."""
        try:
            for obj in self.api.list(f"{self.path}/{self.plural}"):
                self._try(obj)
        except ApiError as error:
            if error.status in _COME_AGAIN:
                return True
            self._failure = error
        except BaseException as error:
            self._failure = error
        return self._failure is None

    def _try(self, obj: dict[str, Any]) -> None:
        try:
            self.reconcile(obj)
        except ApiError as error:
            if error.status not in _COME_AGAIN:
                raise

    # --- what most controllers do -----------------------------------------------------------------------

    def owner_of(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """The owner reference that marks what belongs to an object."""
        metadata = obj["metadata"]
        return {
            "apiVersion": f"{self.group}/{self.version}",
            "kind": self.kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def children(self, path: str, obj: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Objects of a path that an object owns, by name."""
        uid = obj["metadata"]["uid"]
        return {
            child["metadata"]["name"]: child
            for child in self.api.list(path)
            if any(owner["uid"] == uid for owner in child["metadata"].get("ownerReferences") or ())
        }

    def pod(self, obj: Mapping[str, Any], name: str, template: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
        """A pod of an object's template, with labels of its own."""
        metadata = dict(template.get("metadata") or {})
        metadata |= {
            "name": name,
            "namespace": obj["metadata"]["namespace"],
            "labels": {**(metadata.get("labels") or {}), **labels},
            "ownerReferences": [self.owner_of(obj)],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"restartPolicy": "Never", **template["spec"]}}

    def set_status(self, obj: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Writes an object's status if it differs."""
        if {key: (obj.get("status") or {}).get(key) for key in status} != dict(status):
            metadata = obj["metadata"]
            path = f"{self.path}/namespaces/{metadata['namespace']}/{self.plural}/{metadata['name']}/status"
            self.api.patch(path, {"status": dict(status)})


def get_pods_path(obj: Mapping[str, Any]) -> str:
    """Where pods of an object's namespace live."""
    return f"/api/v1/namespaces/{obj['metadata']['namespace']}/pods"


def build_crd(group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    """A definition that keeps whatever is written."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"}},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
                }
            ],
        },
    }
