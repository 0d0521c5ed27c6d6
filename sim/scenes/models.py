"""What else acts on the control plane of tests: who serves kinds, who empties namespaces, and kwok, which starts nodes."""

from collections.abc import Callable, Mapping

from e2e.nodes import build_ready_condition
from sim.apiserver.kinds import read_definition
from sim.apiserver.server import Request
from sim.models.base import NODE, Json, Key, Model, get_key

DEFINITION, NAMESPACE = ("apiextensions.k8s.io", "customresourcedefinitions"), ("", "namespaces")
_LEFT_ALONE = ("E2EReady", "E2EFailed")  # reasons by which a node stays as it is (e2e/stages/node.yaml)
_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_ESTABLISHED = {"conditions": [{"type": kind, "status": "True"} for kind in ("Established", "NamesAccepted")]}
_CONTENT = "sim.topogate.dev/content"  # in place of the finalizer in the spec
_AGAIN_S = 0.5


class _Owner(Model):
    """Of objects that hold others: these go first."""

    finalizer: str

    def look(self, resource: tuple[str, str], key: Key) -> None:
        obj = self.find(resource, key)
        if obj is None:
            return
        finalizers = obj["metadata"].get("finalizers") or []
        if not obj["metadata"].get("deletionTimestamp"):
            if self.finalizer not in finalizers:
                self.begin(obj)
                self.patch(resource, key, {"metadata": {"finalizers": [*finalizers, self.finalizer]}})
        elif self.finalizer in finalizers:
            if self._empty(self.find_held(obj)):
                self.end(obj)
                self.patch(resource, key, {"metadata": {"finalizers": [name for name in finalizers if name != self.finalizer]}})
            else:
                self.add(resource, key, _AGAIN_S)

    def begin(self, obj: Json) -> None:
        """Called once."""

    def end(self, obj: Json) -> None:
        """Called when it is empty."""

    def find_held(self, obj: Json) -> Callable[[tuple[str, str], Key], bool]:
        """Whether an object is held by one that is being deleted."""
        raise NotImplementedError

    def _empty(self, is_held: Callable[[tuple[str, str], Key], bool]) -> bool:
        """Deletes what is held; returns whether nothing is left."""
        held = [(resource, key) for resource, stored in self.server.objects.items() for key in sorted(stored) if is_held(resource, key)]
        for resource, key in held:
            obj = self.find(resource, key)
            if obj is not None and not obj["metadata"].get("deletionTimestamp"):
                self.delete(resource, obj, propagationPolicy="Background")
        return not any(self.find(*each) for each in held)


class Definitions(_Owner):
    """Serves a kind from when it is defined until its definition is deleted."""

    user, finalizer = "system:apiserver", _CLEANUP
    resources = (DEFINITION,)

    def begin(self, obj: Json) -> None:
        for kind in read_definition(obj):
            self.server.serve(kind)
        self.patch(DEFINITION, get_key(obj), {"status": _ESTABLISHED}, "status")

    def end(self, obj: Mapping[str, Json]) -> None:
        for kind in read_definition(obj):
            self.server.kinds.pop((kind.group, kind.version, kind.plural), None)

    def find_held(self, obj: Json) -> Callable[[tuple[str, str], Key], bool]:
        resources = {kind.resource for kind in read_definition(obj)}
        return lambda resource, _: resource in resources

    def remove(self, definition: Json) -> None:
        """Its kind, of which there are no objects, has never been defined."""
        self.end(definition)
        options = Request("delete", self.kind(DEFINITION), "", definition["metadata"]["name"], "", {}, {}, user=self.user)
        self.server.delete(options)


class EndedNamespaces(_Owner):
    """Deletes what is in a namespace that is being deleted."""

    user, finalizer = "system:serviceaccount:kube-system:namespace-controller", _CONTENT
    resources = (NAMESPACE,)

    def find_held(self, obj: Json) -> Callable[[tuple[str, str], Key], bool]:
        return lambda _, key: key[0] == obj["metadata"]["name"]


class NodeStarter(Model):
    """Makes each node Ready whose condition no test has written."""

    user = "kwok"
    resources = (NODE,)

    def look(self, resource: tuple[str, str], key: Key) -> None:
        node = self.find(NODE, key)
        if node is None:
            return
        conditions = [dict(each) for each in (node.get("status") or {}).get("conditions") or ()]
        if not any(each["type"] == "Ready" and each.get("reason") in _LEFT_ALONE for each in conditions):
            kept = [each for each in conditions if each["type"] != "Ready"]
            self.patch(NODE, key, {"status": {"conditions": [*kept, build_ready_condition(ready=True)]}}, "status")
