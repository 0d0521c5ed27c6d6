"""The validation family: annotations, objects and their changes through `core.jobs`, as the webhook judges them."""

from collections.abc import Mapping, Sequence
from typing import Any

from core.jobs.annotations import PodSetAnnotations, build_topology_request, validate_pod_sets
from core.jobs.contract import Rules
from core.jobs.objects import validate_workload
from core.model.gates import GATES, ChosenGates
from core.names import JOB_COMPLETION_INDEX_LABEL
from core.placement.algorithms.profile import STANDARD
from core.queueing.flavors.flavor_search import find_admission
from core.queueing.flavors.outcome import Admissible
from core.state.cluster import ClusterState
from core.state.facts import FlavorFacts, TopologyFacts, WorkloadFacts
from core.state.queue_facts import ClusterQueueFacts, LocalQueueFacts
from tests.replay import kinds
from tests.replay.rules import Case, Template, annotations_of, name_of, touching, unexplained
from webhook.gated_rules import validate_gated

UNKNOWN_LEVEL = "h: a level that the topology lacks is a placement refused by name, not one more flavor that does not match"
_ALONE = ("annotations", "slice_size_upper_bound")


def answer(case: Mapping[str, Any]) -> dict[str, Any]:
    """`{admitted, errors}`, with what an admitted one asks for; `{no_fit_reason, attempts}` for a search of flavors."""
    if case["kind"] == "flavor_match":
        return _search(case)
    rules = _judge(case)
    judged = {
        "admitted": not rules.errors,
        "errors": [{"type": error.type.value, "field": error.field} for error in rules.errors],
    }
    return judged | ({} if rules.errors else _asked(case))


def _judge(case: Mapping[str, Any]) -> Rules:
    """By the gates of the case, as the webhook does."""
    gates = ChosenGates({name: on for name, on in (case.get("gates") or {}).items() if name in GATES})
    judged = _judge_without_gates(case)
    if case["kind"] not in _ALONE and case.get("framework") != "workload":
        kind, old = kinds.kind_of(case), None if case.get("op", "create") == "create" else kinds.job_of(case, case["old_object"])
        judged = Rules((*judged.errors, *validate_gated(kind, kinds.job_of(case), old, gates).errors))
    return judged.filter_by_gates(gates)


def _judge_without_gates(case: Mapping[str, Any]) -> Rules:
    if case["kind"] in _ALONE:
        template = {"metadata": {"annotations": case["annotations"]}}
        return validate_pod_sets([PodSetAnnotations(f"{case['field_root']}.annotations", template, case.get("pod_set_count"))])
    if case.get("framework") == "workload":
        return validate_workload(case["object"], case.get("old_object"))
    kind, job = kinds.kind_of(case), kinds.job_of(case)
    if case.get("op", "create") == "create":
        return kind.validate_create(job)
    return kind.validate_update(kinds.job_of(case, case["old_object"]), job)


def _asked(case: Mapping[str, Any]) -> dict[str, Any]:
    if case["kind"] == "annotations":
        labelled = build_topology_request(case["annotations"], pod_index_label=JOB_COMPLETION_INDEX_LABEL)
        return {"topology_request": build_topology_request(case["annotations"]), "topology_request_with_index_label": labelled}
    return {"pod_sets": pod_sets(case)} if case["kind"] == "job" else {}


def pod_sets(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A job's pod sets, less their templates."""
    return [
        {"name": pod_set.name, "count": pod_set.count}
        | ({"topologyRequest": dict(pod_set.topology_request)} if pod_set.topology_request else {})
        for pod_set in kinds.kind_of(case).list_pod_sets(kinds.job_of(case))
    ]


def _search(case: Mapping[str, Any]) -> dict[str, Any]:
    state = ClusterState()
    queue = case["cluster_queue"]
    name = queue["metadata"]["name"]
    state.observe_namespace("ns", {})
    for topology in case["topologies"]:
        state.observe_topology(topology["metadata"]["name"], TopologyFacts.read(topology))
    for flavor in case["resource_flavors"].values():
        state.observe_flavor(flavor["metadata"]["name"], FlavorFacts.read(flavor))
    state.observe_cluster_queue(name, ClusterQueueFacts.read(queue))
    state.observe_local_queue("ns/queue", LocalQueueFacts.read({"spec": {"clusterQueue": name}, "metadata": {"name": "queue"}}))
    metadata = {"name": "workload", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    workload = WorkloadFacts.read({"metadata": metadata, "spec": {"queueName": "queue", "podSets": [case["pod_set"]]}})
    outcome = find_admission(state, workload, state.cluster_queues[name], STANDARD)
    attempts = [{"flavor": attempt.flavor, "no_fit_reason": attempt.reason} for attempt in outcome.attempts]
    return {"no_fit_reason": "" if isinstance(outcome, Admissible) else outcome.reason, "attempts": attempts}


def differences(case: Mapping[str, Any], got: Mapping[str, Any]) -> list[str]:
    """What differs in the errors found, and in what an admitted case asks for, but for rules."""
    if case["kind"] == "flavor_match":
        theirs = {
            "no_fit_reason": case["no_fit_reason"],
            "attempts": [{key: attempt[key] for key in ("flavor", "no_fit_reason")} for attempt in case["attempts"]],
        }
        return [] if got == theirs or _level_is_unknown(case) else [f"{got}, not {theirs}"]
    facts = _facts(case)
    pairs = [
        [(error["type"], error.get("field", "")) for error in errors]
        for errors in (got["errors"], [*case["errors"], *case.get("upper_bound_errors", ())])
    ]
    found = unexplained(facts, *pairs)
    if found or not got["admitted"] or not case["admitted"] or any(rule.requests for rule in touching(facts)):
        return found
    for name in ("pod_sets", "topology_request", "topology_request_with_index_label"):
        if case.get(name) is not None and name in got and (got[name] or {}) != case[name]:
            found.append(f"{name}: {got[name]}, not {case[name]}")
    return found


def _facts(case: Mapping[str, Any]) -> Case:
    templates: Sequence[Template] = ()
    if case["kind"] in _ALONE:
        templates = [Template(case["annotations"], case.get("pod_set_count"))]
    elif case.get("framework") not in (None, "workload"):
        templates = kinds.templates_of(case)
    return Case(templates, case.get("gates") or {}, annotations_of(case.get("object")))


def rule(case: Mapping[str, Any]) -> str | None:
    """The deliberate differences that a case is touched by."""
    if case["kind"] == "flavor_match":
        return UNKNOWN_LEVEL if _level_is_unknown(case) else None
    return name_of(touching(_facts(case)))


def _level_is_unknown(case: Mapping[str, Any]) -> bool:
    request = case["pod_set"].get("topologyRequest") or {}
    asked = request.get("required") or request.get("preferred")
    levels = {level["nodeLabel"] for topology in case["topologies"] for level in topology["spec"]["levels"]}
    return bool(levels) and asked is not None and asked not in levels
