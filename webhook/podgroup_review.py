"""Reviews of jobs that ask, by an annotation of their own, to have their pods placed as a PodGroup, without a queue.

Only the job under review is changed: the reconciler creates the group. While the feature gate is off no component would
remove the gate of the pods, so that the annotation changes nothing and gives a warning.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from core.api.admission_review import UNAVAILABLE, AdmissionRequest, allow, build_patched, deny
from core.jobs.contract import Json, Rules
from core.jobs.placer import find_dropped
from core.jobs.podgroup_annotation import Grouping, find_asked, find_group, group_name, validate_change, validate_new, with_membership
from core.jobs.schema_check import find_misshapen
from core.model.gates import POD_GROUPS
from core.names import PODGROUP_TOPOLOGY, QUEUE_NAME_LABEL
from webhook.answers import get_metadata_map, is_going, judge
from webhook.jsonpatch import diff
from webhook.lookup import Lookup, LookupFailed
from webhook.registration import MUTATE_GROUP, VALIDATE_GROUP, build_hook_path

logger = logging.getLogger(__name__)
RETRY_AFTER_S = 1  # for clients, when the API server did not answer us
_SHOWN = f"metadata.annotations[{PODGROUP_TOPOLOGY}]"
_IS_OFF = f"{_SHOWN}: has no effect: the feature gate {POD_GROUPS} of topogate is off"
_IS_PART = f"{_SHOWN}: has no effect: what made this object is queued, and its pods are placed by that"


class GroupReviews:
    """Answers them by path; `is_on`: the feature gate."""

    def __init__(self, kinds: Iterable[object], lookup: Lookup, *, is_on: bool) -> None:
        self._lookup, self._is_on = lookup, is_on
        self.handlers: dict[str, Callable[[AdmissionRequest], Awaitable[dict[str, Any]]]] = {}
        for kind in kinds:
            if isinstance(kind, Grouping):
                self.handlers[build_hook_path(MUTATE_GROUP, kind.group, kind.version, kind.kind)] = self._make_mutator(kind)
                self.handlers[build_hook_path(VALIDATE_GROUP, kind.group, kind.version, kind.kind)] = self._validate(kind)

    def is_served(self, kind: object, job: Json) -> bool:
        """Whether a job asks to be placed as a PodGroup by its annotation, its kind can be, and the feature gate is on. Nothing is amiss
        then if it has no queue. The value of the annotation is not looked at."""
        return self._is_on and isinstance(kind, Grouping) and PODGROUP_TOPOLOGY in get_metadata_map(job, "annotations")

    def _make_mutator(self, kind: Grouping) -> Callable[[AdmissionRequest], Awaitable[dict[str, Any]]]:
        async def handle(request: AdmissionRequest) -> dict[str, Any]:
            job, old = request.object, request.old_object
            if job is None or not self.is_served(kind, job) or QUEUE_NAME_LABEL in get_metadata_map(job, "labels"):
                return allow(request)
            if find_misshapen(kind.spec_shape, job):
                return allow(request)  # the validating review reports what is wrong with it
            if old is not None:
                # What replaces the whole object would take its pods out of their group.
                name = None if find_asked(old) is None or find_misshapen(kind.spec_shape, old) else find_group(kind, old)
                return allow(request) if name is None else build_patched(request, list(diff(job, with_membership(kind, job, name))))
            try:
                if await self._lookup.is_part_of_queued(job, request.namespace):
                    return allow(request, [_IS_PART])
            except LookupFailed as error:
                logger.warning("a lookup failed", extra={"what": "the owner", "namespace": request.namespace, "error": str(error)})
                message = f"the owner of the object could not be looked up ({error}); try again"
                return deny(request, message, code=UNAVAILABLE, retry_after_s=RETRY_AFTER_S)
            name = group_name(kind, job, f"{request.namespace}\n{request.uid}")
            return build_patched(request, list(diff(job, with_membership(kind, job, name))))

        return handle

    def _validate(self, kind: Grouping) -> Callable[[AdmissionRequest], Awaitable[dict[str, Any]]]:
        async def handle(request: AdmissionRequest) -> dict[str, Any]:
            job, old = request.object, request.old_object
            if job is None or is_going(job):
                return allow(request)
            if not self._is_on:
                asks = PODGROUP_TOPOLOGY in get_metadata_map(job, "annotations") and PODGROUP_TOPOLOGY not in get_metadata_map(
                    old, "annotations"
                )
                return allow(request, [_IS_OFF] if asks else [])
            misshapen = find_misshapen(kind.spec_shape, job)
            if misshapen:
                return judge(request, Rules(misshapen))
            if old is None or find_misshapen(kind.spec_shape, old):
                if find_asked(job) is None:
                    return judge(request, Rules())
                return judge(request, Rules((*validate_new(kind, job).errors, *find_dropped(kind.list_roles(job), job))))
            return judge(request, validate_change(kind, old, job))

        return handle
