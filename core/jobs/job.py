"""batch/v1 Job."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from core.jobs import annotations, templates
from core.jobs.contract import Defaults, ErrorType, FieldError, Finish, Json, PodSetStart, PodSetTemplate, Rules
from core.names import (
    JOB_COMPLETION_INDEX_LABEL,
    MAIN_POD_SET,
    PODSET_GROUP_NAME,
    QUEUE_NAME_LABEL,
    SLICE_SIZE,
    TOPOLOGY_ANNOTATIONS,
    TRACEPARENT_ANNOTATION,
)

_TEMPLATE = "spec.template"


class Job:
    """One pod set, `main`; ranks are completion indexes."""

    kind, group, version, plural = "Job", "batch", "v1", "jobs"

    def default(self, job: Json, defaults: Defaults) -> dict[str, Any]:
        changed = deepcopy(dict(job))
        metadata, spec = changed.setdefault("metadata", {}), changed.setdefault("spec", {})
        labels = metadata.get("labels") or {}
        if QUEUE_NAME_LABEL not in labels and defaults.default_queue:
            metadata["labels"] = {**labels, QUEUE_NAME_LABEL: defaults.default_queue}
        if QUEUE_NAME_LABEL not in (metadata.get("labels") or {}):
            return changed  # nobody asked us to queue it
        spec["suspend"] = True
        if templates.asks_for_topology(spec.get("template") or {}):
            spec["template"] = templates.with_gate(spec["template"])
        if defaults.traceparent:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), TRACEPARENT_ANNOTATION: defaults.traceparent}
        return changed

    def validate_create(self, job: Json) -> Rules:
        template = (job.get("spec") or {}).get("template") or {}
        return annotations.validate_pod_sets(
            [annotations.PodSetAnnotations(f"{_TEMPLATE}.metadata.annotations", template, self._count(job))]
        )

    def validate_update(self, old: Json, new: Json) -> Rules:
        errors = []
        before, after = (((obj.get("metadata") or {}).get("labels") or {}).get(QUEUE_NAME_LABEL) for obj in (old, new))
        if before is not None and before != after and not self.is_suspended(old):
            accepted = f"a running job keeps its queue ({before!r}); suspend it first"
            errors.append(FieldError(ErrorType.INVALID, f"metadata.labels[{QUEUE_NAME_LABEL}]", after or "", accepted))
        # A job that leaves its queue leaves topogate, whatever its annotations say; and what it asks for is judged when
        # that changes, so that a stopped job can get its own template back.
        asks = self.is_suspended(new) and not self.is_started(new) and self._asked(old) != self._asked(new)
        judged = self.validate_create(new) if after is not None and (asks or before is None) else Rules()
        return Rules((*errors, *judged.errors), judged.warnings)

    def _asked(self, job: Json) -> tuple[int, dict[str, Any]]:
        """Pods and topology annotations of a job."""
        found = (((job.get("spec") or {}).get("template") or {}).get("metadata") or {}).get("annotations") or {}
        return self._count(job), {name: found[name] for name in (*TOPOLOGY_ANNOTATIONS, SLICE_SIZE, PODSET_GROUP_NAME) if name in found}

    def pod_sets(self, job: Json) -> list[PodSetTemplate]:
        template = templates.workload_template(job["spec"]["template"])
        request = annotations.topology_request(template["metadata"].get("annotations") or {}, pod_index_label=JOB_COMPLETION_INDEX_LABEL)
        return [PodSetTemplate(MAIN_POD_SET, self._count(job), template, request)]

    def _count(self, job: Json) -> int:
        spec = job.get("spec") or {}
        parallelism = spec.get("parallelism")
        parallelism = 1 if parallelism is None else int(parallelism)
        completions = spec.get("completions")
        return parallelism if completions is None else min(parallelism, int(completions))

    def is_suspended(self, job: Json) -> bool:
        return bool(job["spec"].get("suspend"))

    def start(self, job: Json, pod_sets: Sequence[PodSetStart]) -> dict[str, Any]:
        return {"spec": {"suspend": False, "template": templates.start_patch(job["spec"]["template"], pod_sets[0])}}

    def has_gate(self, job: Json) -> bool:
        return templates.has_gate(job["spec"]["template"])

    def ungate(self, job: Json) -> dict[str, Any]:
        return {"spec": {"template": templates.ungate_patch(job["spec"]["template"])}}

    def suspend(self, job: Json) -> dict[str, Any]:
        return {"spec": {"suspend": True}}

    def is_started(self, job: Json) -> bool:
        return templates.is_started(job["spec"]["template"])

    def active_pods(self, job: Json) -> int:
        status = job.get("status") or {}
        return int(status.get("active") or 0) + int(status.get("terminating") or 0)

    def restore(self, job: Json, pod_sets: Sequence[Json]) -> dict[str, Any]:
        return {"spec": {"template": templates.restore_patch(job["spec"]["template"], pod_sets[0]["template"])}}

    def finished(self, job: Json) -> Finish | None:
        for condition in (job.get("status") or {}).get("conditions") or ():
            if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
                succeeded = condition["type"] == "Complete"
                return Finish(succeeded, condition.get("message") or ("Job finished successfully" if succeeded else "Job failed"))
        return None
