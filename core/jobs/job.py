"""batch/v1 Job."""

from collections.abc import Iterator
from typing import Any, ClassVar

from core.jobs.contract import FieldError, Finish, Json
from core.jobs.elastic import rules_of_changed_elastic, rules_of_elastic
from core.jobs.shape import BOOLEAN, INTEGER, POD_TEMPLATE, Fields
from core.jobs.templated import Path, Role, TemplatedKind, integer
from core.names import JOB_COMPLETION_INDEX_LABEL, MAIN_POD_SET


class Job(TemplatedKind):
    """One pod set, `main`; ranks are completion indexes."""

    kind, group, version, plural = "Job", "batch", "v1", "jobs"
    always_gated: ClassVar[Path | None] = ("spec", "template")
    spec_shape = Fields({"parallelism": INTEGER, "completions": INTEGER, "suspend": BOOLEAN, "template": POD_TEMPLATE}, ("template",))

    def roles(self, job: Json) -> list[Role]:
        spec = job.get("spec") or {}
        template = spec.get("template") or {}
        count = pods_at_once(spec)
        return [
            Role(MAIN_POD_SET, count, ("spec", "template"), "spec.template", template, pod_index_label=JOB_COMPLETION_INDEX_LABEL),
        ]

    def rules_of_kind(self, job: Json) -> Iterator[FieldError]:
        return rules_of_elastic(job)

    def rules_of_change(self, old: Json, new: Json) -> Iterator[FieldError]:
        return rules_of_changed_elastic(old, new)

    def active_pods(self, job: Json) -> int:
        status = job.get("status") or {}
        return int(status.get("active") or 0) + int(status.get("terminating") or 0)

    def pods_ready(self, job: Json) -> bool | None:
        # Those that have just succeeded are neither ready nor counted as succeeded yet (KEP-349). With fewer completions than
        # parallelism there are never more pods than completions.
        status = job.get("status") or {}
        uncounted = (status.get("uncountedTerminatedPods") or {}).get("succeeded") or ()
        ready = int(status.get("ready") or 0) + int(status.get("succeeded") or 0) + len(uncounted)
        return ready >= pods_at_once(job.get("spec") or {})

    def reclaimable_pods(self, job: Json) -> dict[str, int]:
        """Once fewer completions are missing than run at once, no more pods than these are made (KEP-78). A Job without
        completions makes no new pod after the first success."""
        spec, done = job.get("spec") or {}, int((job.get("status") or {}).get("succeeded") or 0)
        at_once = pods_at_once(spec)
        completions = spec.get("completions")
        missing = (integer(spec.get("parallelism"), 1) if completions is None else int(completions)) - done
        return {MAIN_POD_SET: at_once - max(0, missing)} if done and missing < at_once else {}

    def status_reset(self, job: Json) -> dict[str, Any] | None:
        # The API server lets templates of suspended jobs change only while they have no start time.
        return {"startTime": None} if (job.get("status") or {}).get("startTime") else None

    def finished(self, job: Json) -> Finish | None:
        return self.finish_by_condition(job, "Complete", "Failed")


def pods_at_once(spec: Json) -> int:
    """Pods that a Job of this spec runs at once."""
    parallelism, completions = integer(spec.get("parallelism"), 1), spec.get("completions")
    return parallelism if completions is None else min(parallelism, int(completions))
