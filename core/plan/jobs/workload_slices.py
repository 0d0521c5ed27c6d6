"""Elastic jobs: the Workload that takes over from another when a running job grows, and what is left of one when it shrinks."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.jobs.contract import JobKind
from core.model.admission import Admission, PodSetAdmission
from core.model.wire.assignment import TopologyAssignment
from core.names import API_VERSION, FINISHED, RESOURCE_IN_USE_FINALIZER, SLICE_NAME, SLICE_REPLACES
from core.plan.workloads.desired_workload import build_hashed_name
from core.state.facts import PodFacts, build_object_key, find_family, find_replaced, is_condition_true

Json = Mapping[str, Any]
Domain = tuple[str, ...]


def find_present(workloads: Iterable[Json]) -> Json | None:
    """Returns the first of the `workloads` of one elastic job that is not finished and replaces none that is not finished. Its pods are
    admitted by it, or it is to be admitted first. None where all are finished."""
    live = {build_object_key(w): w for w in workloads if not is_condition_true(w, FINISHED)}
    return next((w for w in live.values() if find_replaced(w) not in live), None)


def find_successor(present: Json, workloads: Iterable[Json]) -> Json | None:
    """Returns the first unfinished workload that names `present` as the one it replaces, admitted or not; None where there is none."""
    key = build_object_key(present)
    return next((w for w in workloads if find_replaced(w) == key and not is_condition_true(w, FINISHED)), None)


def count_pods(workload: Json) -> dict[str, int]:
    """Returns the number of pods that a workload asks for, by pod set."""
    return {pod_set["name"]: int(pod_set["count"]) for pod_set in workload["spec"]["podSets"]}


def with_counts(workload: Json, counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """Returns a workload's pod sets (JSON) with other counts of pods, as shallow copies; those that `counts` lacks keep theirs. They are
    not taken from the job: its templates have what the start added."""
    return [{**pod_set, "count": counts.get(pod_set["name"], pod_set["count"])} for pod_set in workload["spec"]["podSets"]]


def is_alike(one: Json, other: Json) -> bool:
    """Returns whether two workloads have equal pod sets (names, order, templates, topology requests), apart from their counts of pods.
    Queue and priority are not compared."""
    bare = [[{**pod_set, "count": 0} for pod_set in workload["spec"]["podSets"]] for workload in (one, other)]
    return bare[0] == bare[1]


def build_successor(kind: JobKind, job: Json, present: Json) -> dict[str, Any]:
    """Returns the Workload (JSON) of a job that has grown: the spec of the `present` one, active, with the job's present counts of pods,
    and its labels, annotations and owners. It names the first Workload of the job and the one that it replaces. A workload has at most one
    successor, and the name identifies it: a second creation finds the first one."""
    metadata, mine = present["metadata"], job["metadata"]
    name = build_hashed_name(kind.kind, kind.group, mine["name"], f"{mine['uid']}\n{metadata['uid']}")
    own = {SLICE_NAME: find_family(present).partition("/")[2], SLICE_REPLACES: build_object_key(present)}
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": dict(metadata.get("labels") or {}),
            "annotations": {**(metadata.get("annotations") or {}), **own},
            "finalizers": [RESOURCE_IN_USE_FINALIZER],
            "ownerReferences": [dict(owner) for owner in metadata.get("ownerReferences") or ()],
        },
        "spec": {**present["spec"], "active": True, "podSets": with_counts(present, {p.name: p.count for p in kind.list_pod_sets(job)})},
    }


def shrink(admission: Admission, counts: Mapping[str, int], pods: Iterable[PodFacts]) -> Admission | None:
    """Returns a copy of an admission for fewer pods: `counts` by pod set; those that it lacks or that are no less keep theirs. Usage goes
    down in proportion, rounded down; with 0 pods there is no assignment. None while more `pods` of a pod set than that are past their gate
    and have not ended.

    Which pods go the Job controller decides, so a domain keeps as many as live in it. Places of pods that are not there (not made yet, or
    made again) stay where most of the others are: the most scattered are given back.
    """
    live = list(pods)
    left = [_shrink(given, counts.get(given.name, given.count), live) for given in admission.pod_sets]
    return replace(admission, pod_sets=tuple(given for given in left if given is not None)) if None not in left else None


def _shrink(given: PodSetAdmission, count: int, pods: Sequence[PodFacts]) -> PodSetAdmission | None:
    if count >= given.count:
        return given
    mine = [pod for pod in pods if pod.pod_set == given.name and not pod.terminal and not pod.gated]
    if len(mine) > count:
        return None
    usage = {name: amount * count // given.count for name, amount in given.usage.items()}
    if given.assignment is None or not count:  # no pods are nowhere
        return replace(given, count=count, usage=usage, assignment=None)
    assignment = list_kept_places(given.assignment, count, Counter(_find_domain(pod, given.assignment.levels) for pod in mine))
    return replace(given, count=count, usage=usage, assignment=assignment) if assignment is not None else None


def list_kept_places(assignment: TopologyAssignment, count: int, live: Mapping[Domain, int]) -> TopologyAssignment | None:
    """Returns a copy of an assignment with the places that `count` pods keep: those of pods that live, then others where most of these are,
    then in the largest domains. `live`: pods by the level values of their domain; those outside of the assignment, or beyond what it gives
    their domain, do not count. None where more than `count` live in it. Domains without a pod are left out. All places are kept where there
    are no more than `count`."""
    stay = [min(domain.count, live.get(domain.values, 0)) for domain in assignment.domains]
    rest = count - sum(stay)
    if rest < 0:
        return None
    for i in sorted(range(len(stay)), key=lambda i: (-stay[i], -assignment.domains[i].count, i)):
        more = min(rest, assignment.domains[i].count - stay[i])
        stay[i] += more
        rest -= more
    kept = (replace(domain, count=here) for domain, here in zip(assignment.domains, stay, strict=True) if here)
    return replace(assignment, domains=tuple(kept))


def _find_domain(pod: PodFacts, levels: Sequence[str]) -> Domain:
    return tuple(pod.node_selector.get(level, "") for level in levels)
