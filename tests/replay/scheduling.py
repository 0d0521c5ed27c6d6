"""The scheduling family: cycles of the scheduler and second passes, through the state, cycle and statuses of the reconciler.

A case holds objects as they stand; what the cycle decides is written into them as the reconciler would write it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from core.api.files.configuration_file import read_configuration
from core.model.admission import Admission, decode_admission, encode_admission
from core.model.configuration import ResourceRules, SecondPass
from core.model.gates import GATES, PARTIAL_SLICES, SPREADING, ChosenGates
from core.names import HOSTNAME_LABEL, REASON_MISCONFIGURED, REASON_TOPOLOGY_PLACEMENT_FAILED
from core.placement.algorithms.profile import read_profiles
from core.queueing.cycle.cycle import Cycle
from core.queueing.cycle.run import Verdict
from core.queueing.cycle.second_pass import NodeReplacement, list_due_for_second_pass
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.state.check_facts import CheckFacts
from core.state.cluster import ClusterState
from core.state.facts import FlavorFacts, NodeFacts, PodFacts, TopologyFacts, WorkloadFacts, build_object_key
from core.state.gated_facts import with_partial_slices, with_spreading
from core.state.queue_facts import ClusterQueueFacts, LocalQueueFacts
from tests.queueing.statuses import build_verdict_status

Json = Mapping[str, Any]


# --- answers ----------------------------------------------------------------------------------------------


def answer(case: Json) -> dict[str, Any]:
    """What the record holds as its result, in the record's schema."""
    match case["kind"]:
        case "backoff":
            return {"delay_seconds": SecondPass().pause_s(case["attempt"])}
        case "needs_second_pass":
            return {"result": bool(_due([case["workload"]], case))}
        case "queue_timing":
            return {"ready": _ready(case)}
        case _:
            return _cycle(case)


def _cycle(case: Json) -> dict[str, Any]:
    world = _World(case)
    for verdict in world.cycle.run():
        world.write(verdict)
    held = {key: admission for key in world.workloads if (admission := world.state.workloads.find_holding(key)) is not None}
    return {
        "admissions_in_cache": {key: encode_admission(admission) for key, admission in held.items()},
        "workloads_after": [
            {"metadata": {"namespace": key.partition("/")[0], "name": key.partition("/")[2]}, "status": wire.get("status") or {}}
            for key, wire in world.workloads.items()
        ],
    }


class _World:
    """The objects of a case, the state folded from them, and a cycle."""

    def __init__(self, case: Json, workloads: list[Json] | None = None) -> None:
        self.gates = gates = _gates(case)
        self.now = case.get("now", "2026-01-01T00:00:00Z")
        self.fails = bool(case.get("patch_status_error"))
        self.state = ClusterState(resource_rules=_rules(case))
        self.cycle = Cycle(self.state, read_profiles(gates.values), replacement=NodeReplacement.from_gates(gates))
        self._fold(case)
        self.workloads: dict[str, dict[str, Any]] = {}
        for i, wire in enumerate(case.get("workloads", ()) if workloads is None else workloads):
            # Cases tell workloads apart by name, and leave out what the API server adds.
            added = {"uid": f"uid-{i}", "resourceVersion": "1", "creationTimestamp": f"2026-01-01T00:00:{i:02}Z"}
            self._see(build_object_key(wire), {**deepcopy(dict(wire)), "metadata": {**wire["metadata"], **added}})

    def _fold(self, case: Json) -> None:
        state, readers = self.state, _READERS
        for name in {queue["metadata"]["namespace"] for queue in case.get("local_queues", ())}:
            state.observe_namespace(name, {})
        for field, read in readers.items():
            for wire in case.get(field, ()):
                read(state, wire)

    def _see(self, key: str, wire: dict[str, Any]) -> None:
        self.workloads[key] = wire
        facts = WorkloadFacts.read(wire)
        facts = with_partial_slices(facts) if self.gates.is_on(PARTIAL_SLICES) else facts
        self.state.observe_workload(key, with_spreading(facts, wire) if self.gates.is_on(SPREADING) else facts)

    def write(self, verdict: Verdict) -> None:
        """As the reconciler does: one that cannot be written is taken back."""
        key, wire = verdict.workload.key, self.workloads[verdict.workload.key]
        status = build_verdict_status(wire, verdict, self.now, self.state.resource_rules)
        if self.fails:
            self.state.drop_assumed(key)
            self.cycle.requeue_workload(verdict.workload.uid)
        elif status is not None:
            self._see(key, {**wire, "status": {**(wire.get("status") or {}), **status}})


_READERS: dict[str, Callable[[ClusterState, Json], None]] = {
    "topologies": lambda state, wire: state.observe_topology(wire["metadata"]["name"], TopologyFacts.read(wire)),
    "resource_flavors": lambda state, wire: state.observe_flavor(wire["metadata"]["name"], FlavorFacts.read(wire)),
    "admission_checks": lambda state, wire: state.observe_check(wire["metadata"]["name"], CheckFacts.read(wire)),
    "cluster_queues": lambda state, wire: state.observe_cluster_queue(wire["metadata"]["name"], ClusterQueueFacts.read(wire)),
    "local_queues": lambda state, wire: state.observe_local_queue(build_object_key(wire), LocalQueueFacts.read(wire)),
    "nodes": lambda state, wire: state.observe_node(wire["metadata"]["name"], NodeFacts.read(wire)),
    "pods": lambda state, wire: state.observe_pod(build_object_key(wire), PodFacts.read(wire)),
}


def _gates(case: Json) -> ChosenGates:
    """Those that have to do with placement; others are read and switch nothing."""
    return ChosenGates({name: on for name, on in (case.get("gates") or {}).items() if name in GATES})


def _rules(case: Json) -> ResourceRules:
    """As a Configuration file says them."""
    entries = case.get("resource_transformations")
    if not entries:
        return ResourceRules()
    file = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "resources": {"transformations": entries}}
    return read_configuration(json.dumps(file).encode()).resources


# --- who is due -------------------------------------------------------------------------------------------


def _due(workloads: Sequence[Json], case: Json) -> list[str]:
    """Keys of those to be passed a second time, the objects that their statuses speak of being there."""
    state, replacement = ClusterState(), NodeReplacement.from_gates(_gates(case))
    state.observe_topology("hosts", TopologyFacts("hosts", (HOSTNAME_LABEL,)))
    for wire in workloads:
        status = wire.get("status") or {}
        admission = status.get("admission") or {"clusterQueue": "", "podSetAssignments": []}
        checks = [{"name": check["name"]} for check in status.get("admissionChecks") or ()]
        queue = {"metadata": {"name": admission["clusterQueue"]}, "spec": {"admissionChecksStrategy": {"admissionChecks": checks}}}
        state.observe_cluster_queue(admission["clusterQueue"], ClusterQueueFacts.read(queue))
        for flavor in {flavor for given in admission["podSetAssignments"] for flavor in given["flavors"].values()}:
            state.observe_flavor(flavor, FlavorFacts(flavor, {}, (), (), "hosts"))
        state.observe_workload(build_object_key(wire), WorkloadFacts.read(wire))
    return [workload.key for workload in list_due_for_second_pass(state, replacement)]


def _ready(case: Json) -> list[str]:
    """Whoever is due is passed at once; what it is by then decides. Two objects of one name are two workloads: cases have no uids."""
    update = case.get("update_workload")
    now = [update if update is not None and build_object_key(wire) == build_object_key(update) else wire for wire in case["workloads"]]
    names = {f"{wire['metadata']['namespace']}/{i}": build_object_key(wire) for i, wire in enumerate(now)}
    apart = [{**wire, "metadata": {**wire["metadata"], "name": str(i)}} for i, wire in enumerate(now)]
    return sorted({names[key] for key in _due(apart, case)})


# --- judging ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """`touches` looks at the input alone and says which workloads (None: the whole case) it is about."""

    sentence: str
    touches: Callable[[Json], set[str | None]]


def _verdicts(case: Json, workloads: list[Json] | None = None) -> dict[str, Admissible | NotAdmissible]:
    return {verdict.workload.key: verdict.outcome for verdict in _World(case, workloads).cycle.run()}


def _timed(case: Json) -> set[str | None]:
    return {None} if case["kind"] == "backoff" or (case["kind"] == "queue_timing" and case["pass_time_seconds"] < 1) else set()


def _breaking_a_rule(case: Json) -> set[str | None]:
    if case["kind"] != "schedule_cycle":
        return set()
    return {key for key, found in _verdicts(case).items() if isinstance(found, NotAdmissible) and found.reason == REASON_MISCONFIGURED}


def _in_the_way_of_others(case: Json) -> set[str | None]:
    """Workloads with quota and no place, for which there would be one if no workload had been admitted."""
    if case["kind"] != "schedule_cycle" or case.get("second_pass_workloads"):
        return set()
    waiting = [wire for wire in case["workloads"] if not (wire.get("status") or {}).get("admission")]
    alone = {key for wire in waiting for key, found in _verdicts(case, [wire]).items() if isinstance(found, Admissible)}
    refused = {
        key
        for key, found in _verdicts(case).items()
        if isinstance(found, NotAdmissible) and found.reason == REASON_TOPOLOGY_PLACEMENT_FAILED
    }
    return {*(alone & refused)}


RULES = (
    Rule(
        "i: a second pass is made at once, and after pauses of 10 s, 20 s, 40 s ... until the workload is evicted after 5 min; "
        "the peer waits 1 s first, doubles that to 30 s, and goes on for ever",
        _timed,
    ),
    Rule("h: a level that no topology of the queue has deactivates the workload, with the reason Misconfigured", _breaking_a_rule),
    Rule(
        "who has quota and finds no place is told TopologyPlacementFailed also where other workloads are in the way, "
        "for which the peer says WaitingForQuota",
        _in_the_way_of_others,
    ),
)


def rule(case: Json) -> str | None:
    """The deliberate differences that a case is touched by."""
    return "; ".join(each.sentence for each in RULES if each.touches(case)) or None


def differences(case: Json, got: Json) -> list[str]:
    """What differs in admissions and conditions (type, status, reason), resp. in the result, but for rules."""
    touched = {key for each in RULES for key in each.touches(case)}
    if None in touched:
        return []
    for name in ("delay_seconds", "result", "ready"):
        if name in got:
            return [] if got[name] == case[name] else [f"{name} is {got[name]}, not {case[name]}"]
    found = []
    ours, theirs = ({build_object_key(wire): wire.get("status") or {} for wire in each["workloads_after"]} for each in (got, case))
    for key in sorted({build_object_key(wire) for wire in case["workloads"]} - touched):
        for read in (_admission, _conditions):
            have, want = read(ours.get(key, {})), read(theirs.get(key, {}))
            if have != want:
                found.append(f"{key}: {have}, not {want}")
        cached = (case.get("admissions_in_cache") or {}).get(key)  # of those that the cycle was about
        counted = decode_admission(got["admissions_in_cache"].get(key))
        if cached is not None and counted != decode_admission(cached):
            found.append(f"{key}: {counted} is counted, not {cached}")
    return found


def _admission(status: Json) -> Admission | None:
    return decode_admission(status.get("admission"))


def _conditions(status: Json) -> list[tuple[str, str, str]]:
    return sorted((c["type"], c["status"], c["reason"]) for c in status.get("conditions") or ())
