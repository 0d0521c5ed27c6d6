"""Objects that jobs refer to: looked up in informers that run while their CustomResourceDefinition is served."""

from collections.abc import Callable, Sequence
from functools import partial

from core.jobs.contract import JobKind, Reference, Referring, RelatedKind
from core.jobs.pod_rules import explain_size
from core.resource import Obj, Resource
from core.runtime.watch.informer import Informer
from core.runtime.watch.store import Change, build_object_key


def get_related_resource(related: RelatedKind) -> Resource:
    """Returns the resource under which the API server has objects of a related kind."""
    return Resource(related.group, related.version, related.plural, related.kind, namespaced=related.namespaced)


class Related:
    """Informers of all related kinds, by the name that distinguishes each kind."""

    def __init__(self, kinds: Sequence[JobKind], make_informer: Callable[[Resource], Informer]) -> None:
        referring = [kind for kind in kinds if isinstance(kind, Referring)]
        self._referring = frozenset(map(type, referring))  # to ask a Protocol takes 20 microseconds
        found = {_build_key(related): related for kind in referring for related in kind.related}
        self.informers = {key: make_informer(get_related_resource(related)) for key, related in found.items()}
        self._sizes: dict[tuple[str, str], tuple[str, str]] = {}  # by kind and key: the version, and why an object of it is not read
        for key, informer in self.informers.items():
            informer.add_handler(partial(self._drop_size, key))

    def _drop_size(self, key: str, change: Change) -> None:
        self._sizes.pop((key, build_object_key(change.obj)), None)

    def _explain_size(self, reference: Reference, found: Obj) -> str:
        """See `explain_size`; each version of an object is counted once. No webhook judges it, and each job copies its templates."""
        at, version = (_build_key(reference.related), build_object_key(found)), found["metadata"]["resourceVersion"]
        if self._sizes.get(at, ("", ""))[0] != version:
            self._sizes[at] = version, explain_size(reference, found)
        return self._sizes[at][1]

    def expand(self, kind: JobKind, job: Obj) -> tuple[Obj, str | None]:
        """Returns a job with what it refers to filled in, and None. A job of a kind that refers to nothing comes back as it is, with None.
        Where the object is not named, missing or too large, returns the job unchanged, and the reason as text."""
        if type(kind) not in self._referring or not isinstance(kind, Referring):
            return job, None
        reference = kind.find_reference(job)
        if reference is None:
            return job, f"the {kind.kind} names no object that describes its pods"
        found = self._find(reference, job["metadata"]["namespace"])
        if found is None:
            return job, f"{reference} does not exist"
        too_large = self._explain_size(reference, found)
        return (job, too_large) if too_large else (kind.expand(job, found), None)

    def on_change(self, handler: Callable[[Reference, str | None], None]) -> None:
        """Adds a handler that is called with a reference to each related object that is created, changed or deleted, or there already. It
        also gets the namespace; None: jobs of all namespaces may refer to it."""
        for informer in self.informers.values():
            informer.add_handler(partial(_report_change, handler, informer.resource))

    def _find(self, reference: Reference, namespace: str) -> Obj | None:
        name = f"{namespace}/{reference.name}" if reference.related.namespaced else reference.name
        return self.informers[_build_key(reference.related)].store.get(name)


def _report_change(handler: Callable[[Reference, str | None], None], resource: Resource, change: Change) -> None:
    metadata = change.obj["metadata"]
    related = RelatedKind(resource.kind, resource.group, resource.version, resource.plural, resource.namespaced)
    handler(Reference(related, metadata["name"]), metadata.get("namespace") if resource.namespaced else None)


def _build_key(related: RelatedKind) -> str:
    return f"{related.kind}.{related.group}"
