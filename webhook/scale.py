"""Reviews of the subresource `scale`. It shows a number of replicas and nothing of its object, which is looked up
therefore.

A part of an admitted object has the pods that were admitted, and no more.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from core.api.admission_review import UNAVAILABLE, AdmissionRequest, allow, deny
from core.jobs.contract import ErrorType, FieldError, Json, Reviewed, Rules
from core.jobs.kinds.pod_parents import PodParent, judge_number
from core.jobs.templated import TemplatedKind, get, parse_integer
from core.jobs.templates import has_gate
from core.names import QUEUE_NAME_LABEL, WORKLOAD_ANNOTATION
from core.plan.steps import api_resources as r
from core.resource import Resource
from webhook.answers import judge
from webhook.lookup import Find, LookupFailed, find_controller

logger = logging.getLogger(__name__)
SCALE_PATH = "/validate-scale"
RETRY_AFTER_S = 1
_REPLICAS = ("spec", "replicas")


def find_scalable(kinds: Iterable[Reviewed]) -> list[Resource]:
    """Returns the resources that may have the subresource `scale`: those of `kinds` but pods, in their order, then ReplicaSets."""
    return [*(r.get_resource(kind) for kind in kinds if kind.plural != "pods"), r.REPLICA_SETS]


class ScaleReviews:
    """Answers them; `find` looks an object up."""

    def __init__(self, kinds: Sequence[Reviewed], find: Find) -> None:
        self._find = find
        self._templated = {(kind.group, kind.plural) for kind in kinds if isinstance(kind, TemplatedKind)}
        self._several = {(kind.group, kind.plural) for kind in kinds if isinstance(kind, PodParent) and kind.several}
        self._resources = {(resource.group, resource.plural): resource for resource in find_scalable(kinds)}

    def _is_started_at_once(self, request: AdmissionRequest, found: Json) -> bool:
        """Whether pods that are added to a queued object run before it is stopped for it."""
        spec, labels = found.get("spec"), found["metadata"].get("labels") or {}
        is_templated = (request.resource.group, request.resource.resource) in self._templated
        return is_templated and QUEUE_NAME_LABEL in labels and _is_named(spec) and not _is_gated(spec)

    def _is_several_workloads(self, resource: Resource, found: Json | None) -> bool:
        """Whether each replica of a queued object is a Workload."""
        labels = found["metadata"].get("labels") or {} if found is not None else {}
        return (resource.group, resource.plural) in self._several and QUEUE_NAME_LABEL in labels

    async def handle(self, request: AdmissionRequest) -> dict[str, Any]:
        """Returns the answer to a review, as JSON. It refuses another number of replicas of a started object that another one controls. It
        refuses more pods of a running job that nothing controls, unless its pods have the topology gate; and more Workloads than a queued
        object may have. All else is allowed, also for an unknown resource, a missing object or an unchanged number. Where the object cannot
        be looked up it asks for another try (503)."""
        asked = get(request.object, _REPLICAS)
        resource = self._resources.get((request.resource.group, request.resource.resource))
        if resource is None or asked == get(request.old_object, _REPLICAS):
            return allow(request)
        try:
            found = await self._find(resource, request.name, request.namespace)
        except LookupFailed as error:
            logger.warning("a lookup failed", extra={"what": request.name, "namespace": request.namespace, "error": str(error)})
            message = f"{resource.kind} {request.name} could not be looked up ({error}); try again"
            return deny(request, message, code=UNAVAILABLE, retry_after_s=RETRY_AFTER_S)
        owner = find_controller(found)
        too_many = tuple(judge_number(parse_integer(asked, 0))) if self._is_several_workloads(resource, found) else ()
        if too_many:
            return judge(request, Rules(too_many))
        if (
            found is not None
            and not owner
            and self._is_started_at_once(request, found)
            and parse_integer(asked, 0) > parse_integer(get(request.old_object, _REPLICAS), 0)
        ):
            accepted = f"a running {resource.kind} gets no more pods on a flavor without a topology; suspend it first"
            return judge(request, Rules((FieldError(ErrorType.FORBIDDEN, "spec.replicas", asked, accepted),)))
        if found is None or not owner or not _is_named(found.get("spec")):
            return allow(request)
        above = f"{owner.get('kind')} {owner.get('name')}"
        accepted = f"this {resource.kind} was admitted as a part of {above}, with the pods that it has: change that, which is queued again"
        return judge(request, Rules((FieldError(ErrorType.FORBIDDEN, "spec.replicas", asked, accepted),)))


def _is_gated(value: Any) -> bool:
    """Whether a pod template anywhere in the spec of an object has the topology gate."""
    if isinstance(value, list):
        return any(map(_is_gated, value))
    if not isinstance(value, dict):
        return False
    return has_gate({"spec": value}) or any(map(_is_gated, value.values()))


def _is_named(value: Any) -> bool:
    """Whether annotations anywhere in the spec of an object name a workload, as those of started pod templates do."""
    if isinstance(value, list):
        return any(map(_is_named, value))
    if not isinstance(value, dict):
        return False
    notes: Json | Any = value.get("annotations")
    return (isinstance(notes, dict) and WORKLOAD_ANNOTATION in notes) or any(map(_is_named, value.values()))
