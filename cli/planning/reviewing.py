"""Objects as the API server would store them: named, reviewed and defaulted by the webhook's own code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cli.failures import BadInput
from cli.planning.documents import Document, complete
from core.api.admission_review import AdmissionRequest, patch_of
from core.jobs.contract import JobKind
from core.jobs.kinds.pod import Pod
from core.jobs.kinds.pod_parents import PodParent
from core.jobs.objects import OBJECTS
from core.model.gates import DEVICES, ChosenGates
from core.names import DEFAULT_LOCAL_QUEUE, GROUP, MANAGED_NAMESPACE_LABEL, QUEUE_NAME_LABEL, VERSION
from core.plan.steps import api_resources as r
from core.resource import Obj, Resource
from reconciler.measure.outlook import Outlook
from webhook.jsonpatch import apply
from webhook.registration import build_hook_path
from webhook.review import Reviews

SYSTEM_NAMESPACE = "kube-system"
Queued = JobKind | Pod | PodParent


@dataclass(frozen=True, slots=True)
class Admitted:
    """An object as the webhook lets it pass, and what it warns of."""

    obj: Obj
    warnings: tuple[str, ...] = ()


class Reviewing:
    """Looks up what the webhook would look up in the cluster that is thought of."""

    def __init__(self, outlook: Outlook, kinds: Sequence[JobKind]) -> None:
        self._state = outlook.state
        self._informers = {str(informer.resource): informer for informer in outlook.observed.informers}
        gates = ChosenGates({**outlook.settings.gates.values, DEVICES: bool(outlook.settings.resources.device_classes)})
        self._reviews = Reviews(self._has_default_queue, kinds, self._find, gates=gates)
        self._now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _has_default_queue(self, namespace: str) -> bool:
        return f"{namespace}/{DEFAULT_LOCAL_QUEUE}" in self._state.local_queues

    async def _find(self, resource: Resource, name: str, namespace: str) -> Obj | None:
        informer = self._informers.get(str(resource))
        return informer.store.get(f"{namespace}/{name}" if resource.namespaced else name) if informer is not None else None

    async def review_job(self, document: Document, kind: Queued, namespace: str) -> Admitted:
        """Returns a queued object that is created from a document, as the webhook lets it pass, with its warnings. It is complete, with a
        uid of its own. Raises BadInput, which names every field that is refused, also where it has no name or names no queue."""
        metadata = document.obj.get("metadata") or {}
        name = metadata.get("name") or (f"{metadata['generateName']}plan" if metadata.get("generateName") else None)
        if not name:
            raise BadInput(f"{document.where}: metadata.name: it is missing; it has to be given")
        job = self._complete({**document.obj, "metadata": {**metadata, "name": name}}, r.get_resource(kind), namespace)
        admitted = await self._admit(document, job, r.get_resource(kind)) if self._is_asked_about(job) else Admitted(job)
        if QUEUE_NAME_LABEL not in (admitted.obj["metadata"].get("labels") or {}):
            queue = f"the label {QUEUE_NAME_LABEL} is missing"
            raise BadInput(f"{document.where}: metadata.labels: {queue}: topogate leaves alone what names no LocalQueue")
        return admitted

    async def review_workload(self, document: Document, workload: Obj) -> Admitted:
        """Returns a Workload that the reconciler would create for a document, as the webhook lets it pass, with its warnings. It is
        complete, with a uid of its own. Raises BadInput, which names the document and every field that is refused."""
        rules = next(rules for rules in OBJECTS if rules.kind == r.WORKLOADS.kind)
        admitted = await self._admit(document, workload, Resource(GROUP, VERSION, rules.plural, rules.kind))
        return Admitted(self._complete(admitted.obj, r.WORKLOADS, workload["metadata"]["namespace"]), admitted.warnings)

    def _complete(self, obj: Obj, resource: Resource, namespace: str) -> Obj:
        """What is planned is another than what may be there by its name already."""
        made = complete(obj, resource, namespace)
        return {**made, "metadata": {**made["metadata"], "uid": f"planned-{made['metadata']['uid']}", "creationTimestamp": self._now}}

    async def _admit(self, document: Document, obj: Obj, resource: Resource) -> Admitted:
        warnings: list[str] = []
        for action in ("mutate", "validate"):
            path = build_hook_path(action, resource.group, resource.version, resource.kind)
            response = (await self._reviews.answer(path, _request(obj, resource)))["response"]
            warnings += response.get("warnings", ())
            if not response["allowed"]:
                raise BadInput(_list_refusals(document, response["status"]))
            obj = apply(obj, patch_of(response))
        return Admitted(obj, tuple(warnings))

    def _is_asked_about(self, job: Obj) -> bool:
        """Whether the API server would ask the webhook about a job at all (webhook.registration)."""
        namespace = job["metadata"]["namespace"]
        managed = (self._state.namespaces.get(namespace) or {}).get(MANAGED_NAMESPACE_LABEL) == "true"
        return namespace != SYSTEM_NAMESPACE and (QUEUE_NAME_LABEL in (job["metadata"].get("labels") or {}) or managed)


def _request(obj: Obj, resource: Resource) -> AdmissionRequest:
    metadata = obj["metadata"]
    return AdmissionRequest.model_validate(
        {
            "uid": "plan",
            "kind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
            "resource": {"group": resource.group, "version": resource.version, "resource": resource.plural},
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "operation": "CREATE",
            "object": obj,
            "dryRun": True,
        }
    )


def _list_refusals(document: Document, status: Mapping[str, Any]) -> list[str]:
    causes = status.get("details", {}).get("causes") or ()
    return [f"{document.where}: {cause['field']}: {cause['message']}" for cause in causes] or [f"{document.where}: {status['message']}"]
