"""batch/v1 Job."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from core.jobs.contract import ErrorType, FieldError, Finish, Gang, Json, PodSetStart
from core.jobs.elastic_annotation import is_elastic, validate_changed_elastic, validate_elastic
from core.jobs.schema_check import BOOLEAN, INTEGER, POD_TEMPLATE, Fields
from core.jobs.templated import Path, Role, TemplatedKind, parse_integer
from core.names import COMPLETIONS_EQUAL_PARALLELISM, JOB_COMPLETION_INDEX_LABEL, MAIN_POD_SET, MIN_PARALLELISM

_MIN_PARALLELISM_SHOWN = f"metadata.annotations[{MIN_PARALLELISM}]"


class Job(TemplatedKind):
    """One pod set, `main`; ranks are completion indexes.

    With the annotation job-min-parallelism it runs with fewer pods at once where no more can be admitted (KEP-420),
    until it is stopped.
    """

    kind, group, version, plural = "Job", "batch", "v1", "jobs"
    always_gated: ClassVar[Path | None] = ("spec", "template")
    keeps_start_with: ClassVar[str] = MIN_PARALLELISM  # kubectl merges the templates of all, and the API server keeps them
    spec_shape = Fields({"parallelism": INTEGER, "completions": INTEGER, "suspend": BOOLEAN, "template": POD_TEMPLATE}, ("template",))

    def list_roles(self, job: Json) -> list[Role]:
        """Returns the role `main`, with the number of pods that run at once and, by MIN_PARALLELISM, the fewest with which the Job can run.
        The latter is None where that is absent, no whole number, or not from 1 to the pods at once."""
        spec = job.get("spec") or {}
        template = spec.get("template") or {}
        index, least = JOB_COMPLETION_INDEX_LABEL, _parse_min_parallelism(job)
        path = "spec", "template"
        return [Role(MAIN_POD_SET, count_pods_at_once(spec), path, "spec.template", template, pod_index_label=index, min_count=least)]

    def default_change(self, old: Json, new: Json) -> dict[str, Any]:
        """Returns a copy of `new` as it should be stored. What topogate added to the template and an applied manifest lacks is put back
        (`TemplatedKind.default_change`). Where such a manifest has MIN_PARALLELISM while the Job runs with fewer pods, `parallelism` stays,
        and `completions` if they are to be equal."""
        changed, spec = super().default_change(old, new), old.get("spec") or {}
        runs = self.is_started(old) and not self.is_suspended(old) and not self.is_suspended(new)
        if runs and MIN_PARALLELISM in _get_annotations(new) and count_pods_at_once(new.get("spec") or {}) > count_pods_at_once(spec):
            kept = ("parallelism", "completions") if _has_equal_completions(new) else ("parallelism",)
            changed["spec"] |= {field: spec[field] for field in kept if field in spec}
        return changed

    def find_gang(self, job: Json) -> Gang:
        """Returns one gang of the pods that the Job runs at once, less those that are not made again (`count_reclaimable_pods`): they may
        be gone."""
        return Gang(count_pods_at_once(job.get("spec") or {}) - self.count_reclaimable_pods(job).get(MAIN_POD_SET, 0))

    def validate_kind(self, job: Json) -> Iterator[FieldError]:
        """Yields errors of ELASTIC_JOB and, while the Job is not started, of MIN_PARALLELISM and COMPLETIONS_EQUAL_PARALLELISM."""
        yield from validate_elastic(job)
        if not self.is_started(job):  # one that runs may have been started with fewer pods
            yield from _validate_partial(job)
            yield from _check_completions(job)

    def is_resizable(self, job: Json) -> bool:
        """Returns whether the annotation ELASTIC_JOB of the Job is exactly `true`."""
        return is_elastic(job)

    def validate_change(self, old: Json, new: Json) -> Iterator[FieldError]:
        """Yields an error where ELASTIC_JOB changes, and, of a Job that runs before and after, one where MIN_PARALLELISM does. Where counts
        of a started Job that runs change, it also yields one if they are not equal as COMPLETIONS_EQUAL_PARALLELISM asks."""
        yield from validate_changed_elastic(old, new)
        if self.is_started(new) and _get_counts(old) != _get_counts(new) and not self.is_suspended(old) and not self.is_suspended(new):
            yield from _check_completions(new)
        before, after = (_get_annotations(job).get(MIN_PARALLELISM) for job in (old, new))
        if before == after:
            return
        if not self.is_suspended(old) and not self.is_suspended(new):
            accepted = f"a running job keeps it ({before!r}); suspend it first"
            yield FieldError(ErrorType.FORBIDDEN, _MIN_PARALLELISM_SHOWN, after, accepted)

    def start(self, job: Json, pod_sets: Sequence[PodSetStart]) -> dict[str, Any]:
        """Returns a copy of the Job that is not suspended, with what `pod_sets` add, and with as many pods at once as were admitted.
        `completions` are set to that number, too, only with the annotation COMPLETIONS_EQUAL_PARALLELISM and while no pod has succeeded and
        no index failed."""
        changed, completions = super().start(job, pod_sets), (job.get("spec") or {}).get("completions")
        started = _with_pods(changed, next((start.count for start in pod_sets if start.name == MAIN_POD_SET), None))
        if _count_succeeded(job) + _count_failed_indexes(job) and completions is not None:
            started["spec"]["completions"] = completions
        return started

    def restore(self, job: Json, pod_sets: Sequence[Json] | None) -> dict[str, Any]:
        """Returns a copy of the stopped Job with its own templates; see `JobKind.restore`. If its pod set `main` has a `minCount`, it gets
        that pod set's count as `parallelism`, and as `completions` if the annotation COMPLETIONS_EQUAL_PARALLELISM is true."""
        changed = super().restore(job, pod_sets)
        partial = (p["count"] for p in pod_sets or () if p["name"] == MAIN_POD_SET and p.get("minCount") is not None)
        return _with_pods(changed, next(partial, None))

    def count_active_pods(self, job: Json, dropped: int = 0) -> int:
        """Returns the pods that its status counts as active, and those it counts as terminating, less `dropped` of these."""
        status = job.get("status") or {}
        return int(status.get("active") or 0) + max(0, int(status.get("terminating") or 0) - dropped)

    def are_pods_ready(self, job: Json) -> bool | None:
        """Returns whether ready and succeeded pods, with the indexes that failed for good, are as many as the pods it runs at once; never
        None."""
        # Those that have just succeeded are neither ready nor counted as succeeded yet (KEP-349). With fewer completions than
        # parallelism there are never more pods than completions.
        ready = int((job.get("status") or {}).get("ready") or 0)
        return ready + _count_succeeded(job) + _count_failed_indexes(job) >= count_pods_at_once(job.get("spec") or {})

    def count_reclaimable_pods(self, job: Json) -> dict[str, int]:
        """Returns the number of pods of `main` that are not created any more, by its status; empty where there are none.

        With completions they are the pods at once less the completions that neither succeeded nor failed for good (KEP-78). A Job without
        completions creates no pod after the first success: each that succeeded counts.
        """
        spec, done = job.get("spec") or {}, int((job.get("status") or {}).get("succeeded") or 0) + _count_failed_indexes(job)
        at_once = count_pods_at_once(spec)
        completions = spec.get("completions")
        missing = (parse_integer(spec.get("parallelism"), 1) if completions is None else int(completions)) - done
        return {MAIN_POD_SET: at_once - max(0, missing)} if done and missing < at_once else {}

    def build_status_reset(self, job: Json) -> dict[str, Any] | None:
        """Returns a merge patch that removes the start time; None where there is none."""
        # The API server lets templates of suspended jobs change only while they have no start time.
        return {"startTime": None} if (job.get("status") or {}).get("startTime") else None

    def find_finish(self, job: Json) -> Finish | None:
        """Returns how the Job ended by its conditions Complete and Failed; None while neither is True."""
        return self.finish_by_condition(job, "Complete", "Failed")


def _get_annotations(job: Json) -> Mapping[str, Any]:
    return (job.get("metadata") or {}).get("annotations") or {}


def _validate_partial(job: Json) -> Iterator[FieldError]:
    text = _get_annotations(job).get(MIN_PARALLELISM)
    if text is not None and _parse_min_parallelism(job) is None:
        most = count_pods_at_once(job.get("spec") or {})
        accepted = f"a whole number from 1 to {most} is expected, which is how many pods the job runs at once"
        yield FieldError(ErrorType.INVALID, _MIN_PARALLELISM_SHOWN, text, accepted)


def _check_completions(job: Json) -> Iterator[FieldError]:
    text, spec = _get_annotations(job).get(COMPLETIONS_EQUAL_PARALLELISM), job.get("spec") or {}
    if text is None:
        return
    field = f"metadata.annotations[{COMPLETIONS_EQUAL_PARALLELISM}]"
    if text not in ("true", "false"):
        yield FieldError(ErrorType.INVALID, field, text, 'either "true" or "false" is expected')
    elif text == "true" and (
        spec.get("completions") != parse_integer(spec.get("parallelism"), 1) or spec.get("completionMode") != "Indexed"
    ):
        yield FieldError(ErrorType.INVALID, field, text, "spec.completions must equal spec.parallelism, and spec.completionMode be Indexed")


def _parse_min_parallelism(job: Json) -> int | None:
    """Returns the fewest pods with which a Job can run; None where it has no valid number."""
    text = _get_annotations(job).get(MIN_PARALLELISM)
    least = int(text) if isinstance(text, str) and re.fullmatch(r"[0-9]{1,9}", text) else 0
    return least if 1 <= least <= count_pods_at_once(job.get("spec") or {}) else None


def _with_pods(job: dict[str, Any], count: int | None) -> dict[str, Any]:
    """A copy of a Job of ours that runs so many pods at once; as many must succeed as before. None: as it is."""
    if count is not None and count_pods_at_once(job["spec"]) != count:
        job["spec"]["parallelism"] = count
        if _has_equal_completions(job):
            job["spec"]["completions"] = count  # its pods are ranks of one run: without these two the last ones would never start
    return job


def _get_counts(job: Json) -> tuple[Any, Any]:
    spec = job.get("spec") or {}
    return spec.get("parallelism"), spec.get("completions")


def _has_equal_completions(job: Json) -> bool:
    return _get_annotations(job).get(COMPLETIONS_EQUAL_PARALLELISM) == "true"


def _count_succeeded(job: Json) -> int:
    status = job.get("status") or {}
    return int(status.get("succeeded") or 0) + len((status.get("uncountedTerminatedPods") or {}).get("succeeded") or ())


def _count_failed_indexes(job: Json) -> int:
    """Indexes for which no pod is made again, as too many have failed (`status.failedIndexes`: `1,3-5`)."""
    ranges = [part.split("-") for part in ((job.get("status") or {}).get("failedIndexes") or "").split(",") if part]
    return sum(int(ends[-1]) - int(ends[0]) + 1 for ends in ranges)


def count_pods_at_once(spec: Json) -> int:
    """Returns the number of pods that a Job of this spec runs at once: `parallelism` (1 where it is absent), but no more than
    `completions`."""
    parallelism, completions = parse_integer(spec.get("parallelism"), 1), spec.get("completions")
    return parallelism if completions is None else min(parallelism, int(completions))
