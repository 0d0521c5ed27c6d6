"""What feature gates add to the facts of a Workload."""

from dataclasses import replace
from heapq import nsmallest

from core.model.podset import Mode
from core.model.topology_spreading import Spreading, parse_spreading
from core.names import JOB_UID_LABEL, TOPOLOGY_SPREADING
from core.state.facts import Json, PodSetFacts, WorkloadFacts

MOST_LABELS = 256  # of a Workload, by which it is counted; the API server accepts as many as an object has room for


def with_partial_slices(workload: WorkloadFacts) -> WorkloadFacts:
    """Returns a copy of a workload in which the last slice of a pod set with a single layer of slices may have fewer pods (gate
    TASPartialSlices); the same object without such a pod set."""
    pod_sets = tuple(
        replace(pod_set, topology=replace(pod_set.topology, partial=True))
        if pod_set.topology is not None and len(pod_set.topology.slices) == 1
        else pod_set
        for pod_set in workload.pod_sets
    )
    return replace(workload, pod_sets=pod_sets) if pod_sets != workload.pod_sets else workload


def with_spreading(facts: WorkloadFacts, workload: Json) -> WorkloadFacts:
    """Returns a copy of the facts of a Workload (JSON) with its labels, by which it is counted, and with the rules of TOPOLOGY_SPREADING of
    its pod sets (gate SPREADING). A text in place of rules has the reason why they cannot be kept: a value that cannot be read, no required
    level, or a group with other rules elsewhere. Of more than `MOST_LABELS` labels only so many are taken, the first by name, and
    JOB_UID_LABEL."""
    labels = dict(workload["metadata"].get("labels") or {})
    if len(labels) > MOST_LABELS:
        labels = {name: labels[name] for name in nsmallest(MOST_LABELS, labels, key=lambda name: (name != JOB_UID_LABEL, name))}
    asked = [
        _read_spreading(pod_set, wire, labels.get(JOB_UID_LABEL))
        for pod_set, wire in zip(facts.pod_sets, (workload.get("spec") or {}).get("podSets") or (), strict=True)
    ]
    groups: dict[str, set[Spreading | str | None]] = {}
    for pod_set, spreading in zip(facts.pod_sets, asked, strict=True):
        groups.setdefault(pod_set.group or "", set()).add(spreading)
    mixed = {group for group, found in groups.items() if group and len(found) > 1}
    pod_sets = tuple(
        replace(
            pod_set, spreading=f"the pod sets of group {pod_set.group} do not have the same rules" if pod_set.group in mixed else spreading
        )
        if spreading is not None or pod_set.group in mixed
        else pod_set
        for pod_set, spreading in zip(facts.pod_sets, asked, strict=True)
    )
    return replace(facts, labels=labels, pod_sets=pod_sets)


def _read_spreading(pod_set: PodSetFacts, wire: Json, job_uid: str | None) -> Spreading | str | None:
    notes = ((wire.get("template") or {}).get("metadata") or {}).get("annotations") or {}
    if TOPOLOGY_SPREADING not in notes:
        return None
    if pod_set.topology is None or pod_set.topology.mode is not Mode.REQUIRED:
        return "the pod set has no required topology level"
    spreading, mistakes = parse_spreading(notes[TOPOLOGY_SPREADING])
    return spreading.resolve(job_uid) if spreading is not None else f"{mistakes[0].field.removeprefix('.')} {mistakes[0].accepted}".strip()
