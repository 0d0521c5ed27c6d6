"""The results of the engine as plain values, with the names of the API, for `-o json` and for the terminal alike."""

from collections.abc import Iterable
from typing import Any

from core.model.admission import Admission, PodSetAdmission
from core.placement.changes import SuggestedChange
from core.placement.explain.choice import Choice
from core.placement.refusals import Explanation, LevelFact
from core.queueing.flavors.outcome import Admissible, Attempt, NotAdmissible
from core.queueing.flavors.spare_lending import show_loans
from core.queueing.ordering.partial_admission import list_shortfalls
from core.resource import Obj
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts, find_controller

Report = dict[str, Any]
_NAMED_FIXES = 20  # nodes of one change that are listed one by one


def describe_owner(workload: WorkloadFacts, obj: Obj) -> str:
    """Returns the name of what a workload was made for, as `topogate explain` takes it (`job/NAME`); its own, as `workload/NAME`, where it
    has no owner."""
    owner = find_controller(obj)
    return f"{owner['kind'].lower()}/{owner['name']}" if owner is not None else f"workload/{workload.key.partition('/')[2]}"


def describe_state(facts: WorkloadFacts) -> str:
    """Returns how far a workload is, in a word or two: one of `waiting`, `quota reserved`, `admitted`, `stopping`, `finished`, ..."""
    if facts.finished:
        return "finished"
    if facts.deleting:
        return "being deleted"
    if facts.evicted and facts.quota_reserved:
        return "stopping"
    if not facts.active:
        return "deactivated"
    if facts.on_hold:
        return "on hold"
    if facts.admitted:
        return "admitted"
    return "quota reserved" if facts.quota_reserved else "waiting"


def report_admission(state: ClusterState, admission: Admission, facts: WorkloadFacts | None) -> list[Report]:
    """Returns for each pod set, as plain data, its `name`, pods (`count`), `flavors` by resource, and `domains`. A domain has its `levels`
    and `values` from the top, and its pods (`count`).

    Where they apply there are `spares` (nodes that are kept free for it) and `awaitsTopology` (its domains are found later). With fewer
    pods than it asks for it has `asked` and `minimum`."""
    asked = {each.pod_set: {"asked": each.asked, "minimum": each.least} for each in list_shortfalls(facts, admission)} if facts else {}
    return [
        {
            "name": given.name,
            "count": given.count,
            **asked.get(given.name, {}),
            "flavors": dict(given.flavors),
            "domains": _report_domains(state, given),
        }
        | ({"spares": list(given.spares)} if given.spares else {})
        | ({"awaitsTopology": True} if given.delayed is not None and given.assignment is None else {})
        for given in admission.pod_sets
    ]


def _report_domains(state: ClusterState, given: PodSetAdmission) -> list[Report]:
    domains = given.assignment.domains if given.assignment is not None else ()
    flavor = state.find_topology_flavor(given.flavors.values())
    view = state.get_view(flavor) if flavor is not None else None
    levels = list(view.topology.levels) if view is not None else []
    places = state.find_places([given])
    return [
        {"levels": levels, "values": list(places.list_level_values(given, index)), "count": domain.count}
        for index, domain in enumerate(domains)
    ]


def report_found(state: ClusterState, found: Admissible, facts: WorkloadFacts | None) -> Report:
    """Returns a way to admit a workload, and why there, as plain data: `clusterQueue`, `podSets` (see `report_admission`) and `why`, and
    where they apply `fewerSince`, `borrows` and `admissionChecks`. `facts` None: of a workload that is not known."""
    report: Report = {
        "clusterQueue": found.admission.cluster_queue,
        "podSets": report_admission(state, found.admission, facts),
        "why": [*report_choices(found.choices, found.together), *([show_loans(found.loans, facts)] if found.loans else [])],
    }
    if found.fewer_since:
        report["fewerSince"] = found.fewer_since
    if found.borrows:
        report["borrows"] = True
    if found.checks:
        report["admissionChecks"] = list(found.checks)
    return report


def report_choices(choices: Iterable[Choice], together: str = "") -> list[str]:
    """Returns a sentence for each choice, that is for each pod set that has a place; before them `together`, if it is not empty."""
    return [text for text in (together, *map(str, choices)) if text]


def report_refusal(refusal: NotAdmissible) -> Report:
    """Returns why there is no way now, as plain data: `reason`, `message`, and in `attempts` what was tried, by pod set and flavor. Where
    they apply it has `breaksRule`, and in `preempting` the workloads that would be preempted (`victims`), those that leave already
    (`leaving`), and those that are preempted once their admission is observed (`admittedJustNow`)."""
    report: Report = {"reason": refusal.reason, "message": refusal.message, "attempts": [_report_attempt(one) for one in refusal.attempts]}
    if refusal.breaks_rule:
        report["breaksRule"] = True
    if refusal.preempting is not None:
        report["preempting"] = {
            "victims": [{"workload": victim.workload.key, "why": victim.why} for victim in refusal.preempting.victims],
            "leaving": list(refusal.preempting.leaving),
            "admittedJustNow": list(refusal.preempting.unseen),
        }
    return report


def _report_attempt(attempt: Attempt) -> Report:
    report: Report = {"podSet": attempt.pod_set, "flavor": attempt.flavor, "reason": attempt.reason, "message": attempt.sentence}
    report |= {"pods": attempt.pods} if attempt.pods is not None else {}
    explanation = attempt.refusal.explanation if attempt.refusal is not None else None
    return report | (_report_explanation(explanation) if explanation is not None else {})


def _report_explanation(explanation: Explanation) -> Report:
    report: Report = {
        "levels": [_report_level(fact) for fact in explanation.levels],
        "totalNodes": explanation.total_nodes,
        "excluded": [{"reason": one.reason, "count": one.count, "example": one.example} for one in explanation.exclusions],
        "largestFit": explanation.largest_fit,
        "notes": list(explanation.notes),
        "wouldHelp": [_change(change) for change in explanation.changes],
    }
    return report | ({"never": str(explanation.never)} if explanation.never is not None else {})


def _report_level(fact: LevelFact) -> Report:
    return {
        "level": fact.level,
        "domains": fact.domains,
        "best": list(fact.best),
        "fit": fact.fit,
        "wanted": fact.wanted,
        "unit": fact.unit,
        "lacks": {amount.resource: str(amount).partition(" ")[0] for amount in fact.short},
        "message": str(fact),
    }


def _change(change: SuggestedChange) -> Report:
    report: Report = {"message": str(change)}
    if change.level is not None:
        report["level"] = change.level
    if change.preferred:
        report["preferred"] = True
    if change.slices is not None:
        report["slices"] = change.slices
    if change.pods is not None:
        report["pods"] = change.pods
    if change.nodes:
        report["nodes"] = [fix.node for fix in change.nodes[:_NAMED_FIXES]]
        report["nodeCount"] = len(change.nodes)
    return report
