"""What is written for the admission checks of a workload that bring nodes: ProvisioningRequests with their PodTemplates, and the states of
the checks. What each check needs is decided by `core.plan.workloads.provisioning`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core import trace_names as t
from core.names import ACTIVE, ADMISSION_CHECK_UPDATED, EVENT_PROVISIONING_CREATED, PROVISIONING_CONTENT
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.steps import writes as w
from core.plan.steps.conditions import Condition, has_condition, set_conditions
from core.plan.steps.steps import NOTHING, Event, Log, Overtaken, Plan, Span, Step, make_plan
from core.plan.workloads.admission_status import sync_status
from core.plan.workloads.checks import build_changed_check
from core.plan.workloads.desired_workload import MissingFlavor
from core.plan.workloads.provisioning import Action, Drop, Make, SetState, list_superseded, list_withdrawn, plan_provisioning
from core.plan.workloads.provisioning_objects import DesiredRequest
from core.resource import Obj
from core.state.check_facts import ProvisioningConfig
from core.state.facts import FlavorFacts, WorkloadFacts, build_object_key

Json = Mapping[str, Any]
_GONE = frozenset({Overtaken.GONE})


@dataclass(frozen=True, slots=True)
class ProvisionedWorkload:
    """A workload, and what nodes are asked for with.

    `configs`: of those of its checks that bring nodes, by name of the check; None of one that cannot be performed. `requests`: by name,
    those of the workload, and those with a name that one of its has.
    """

    workload: Obj
    facts: WorkloadFacts
    configs: Mapping[str, ProvisioningConfig | None]
    requests: Mapping[str, Obj]
    flavors: Mapping[str, FlavorFacts]
    now: str

    @property
    def checks(self) -> dict[str, Json]:
        """Returns all of its admission checks (JSON, not copied) in a new map, by name; empty where it has none."""
        return {check["name"]: check for check in (self.workload.get("status") or {}).get("admissionChecks") or ()}

    @property
    def asks(self) -> bool:
        """Returns whether the workload has quota and checks that bring nodes, and is active, not evicted, finished or being deleted. It
        waits for nodes, or runs on nodes that it was given for a check."""
        facts = self.facts
        is_over = facts.evicted or facts.finished or facts.deleting or not facts.active
        return facts.admission is not None and facts.quota_reserved and not is_over and bool(self.configs)


@dataclass(frozen=True, slots=True)
class ProvisioningDecision:
    """What each check needs, by name; requests that are not needed any more, and those that end once the checks are
    decided. `problem`: why the needs of some check are unknown."""

    actions: Mapping[str, Action]
    ending: tuple[Obj, ...] = ()
    superseded: tuple[Obj, ...] = ()
    problem: str = ""

    @property
    def wanted(self) -> dict[str, DesiredRequest]:
        """Returns the requests that are to be made, by name of the check."""
        return {name: action.wanted for name, action in self.actions.items() if isinstance(action, Make)}

    @property
    def templates(self) -> list[str]:
        """Returns the names of the PodTemplates of the requests that end: those `ending`, then those `superseded`. They may be gone
        already, and a name may come twice."""
        return [name for request in (*self.ending, *self.superseded) for name in _list_templates(request)]


def decide(f: ProvisionedWorkload) -> ProvisioningDecision:
    """Returns what each check needs, and which requests end, by the objects as they are. Where the workload does not ask for nodes (`asks`)
    there are no actions, only requests that end. A check with a flavor that does not exist has no action: that is the `problem` of the
    decision."""
    ending = {request["metadata"]["name"]: dict(request) for request in list_withdrawn(f.workload, f.requests)}
    if not f.asks:
        return ProvisioningDecision({}, tuple(ending.values()))
    assert f.facts.admission is not None
    admission, admitted, checks = f.facts.admission, f.facts.admitted, f.checks
    actions, problem = dict[str, Action](), ""
    for name, config in f.configs.items():
        try:
            actions[name] = plan_provisioning(
                f.workload, admission, checks[name], config, f.requests, f.flavors, admitted=admitted, now=f.now
            )
        except MissingFlavor as error:
            problem = str(error)
    ending |= {action.request["metadata"]["name"]: dict(action.request) for action in actions.values() if isinstance(action, Drop)}
    over = list_superseded(f.workload, {name: checks[name] for name in f.configs}, f.requests)
    return ProvisioningDecision(actions, tuple(ending.values()), tuple(dict(request) for request in over), problem)


def plan_check(check: Obj, condition: Condition, now: str) -> Plan:
    """Returns the plan that writes and logs the condition Active of an AdmissionCheck. It is empty where the check has it. `now`: the time
    as the API writes it."""
    before = (check.get("status") or {}).get("conditions") or []
    if has_condition(before, condition):
        return NOTHING
    generation = int(check["metadata"].get("generation") or 0)
    conditions = set_conditions(before, [condition], now=now, generation=generation)
    log = Log("check judged", {"check": check["metadata"]["name"], ACTIVE: condition.status, "why": condition.message})
    return make_plan(Step("judge check", w.patch_status(r.ADMISSION_CHECKS, check, {"conditions": conditions}), log=log))


def plan_request(workload: Obj, wanted: DesiredRequest, templates: Mapping[str, Obj]) -> Plan:
    """Returns the plan that makes the PodTemplates that are missing, then the request that names them. `templates`: those that exist, by
    name. A PodTemplate of an earlier request goes first: then the plan has only that step, and a `problem`."""
    steps = []
    for template in wanted.templates:
        name = template["metadata"]["name"]
        there = templates.get(name)
        if there is None:
            steps.append(Step("make template", w.Create(r.POD_TEMPLATES, template)))
        elif not _is_for_same(there, template):
            goes_first = f"PodTemplate {name} of an earlier request goes first"
            return Plan((Step("end template", w.Delete(r.POD_TEMPLATES, there), passes=_GONE),), problem=goes_first)
    name = wanted.request["metadata"]["name"]
    made = Step(
        "ask for nodes",
        w.Create(r.PROVISIONING_REQUESTS, wanted.request),
        (Event(r.WORKLOADS, workload, EVENT_PROVISIONING_CREATED, f"Created ProvisioningRequest: {name}"),),
        Log("nodes asked for", {"workload": build_object_key(workload), "request": name}),
        Span(t.PROVISION, workload, {t.WORKLOAD: workload["metadata"]["name"], t.PROVISIONING_REQUEST: name}),
        frozenset({Overtaken.CHANGED}),  # it is there: its event, which is on its way, leads to another plan
    )
    return make_plan(*steps, made)


def plan_rest(f: ProvisionedWorkload, decided: ProvisioningDecision, templates: Mapping[str, Obj], refused: Mapping[str, str]) -> Plan:
    """Returns the plan for everything but what is made, with the `problem` of the decision. `templates`: those that exist, by name;
    `refused`: why the API server does not take a request, by name of the check, which is looked at again later. The states of all checks
    are one write, which fails if the workload has changed since: what was judged may not be so any more. After it those requests end that
    others have taken the place of."""
    checks = f.checks
    judged = {name: action.entry for name, action in decided.actions.items() if isinstance(action, SetState)}
    for name, why in refused.items():
        if why != checks[name].get("message"):
            judged[name] = build_changed_check(checks[name], checks[name]["state"], why, f.now)
    ends, later = (
        [step for request in requests for step in _end_request(request, templates)] for requests in (decided.ending, decided.superseded)
    )
    plan = make_plan(*ends, _judge(f, checks, judged) if judged else None, *later, again_s=pacing.REQUEST_REFUSED_S if refused else None)
    return replace(plan, problem=decided.problem)


def _judge(f: ProvisionedWorkload, checks: Mapping[str, Json], judged: Mapping[str, Json]) -> Step:
    status = sync_status(f.workload, [judged.get(name, check) for name, check in checks.items()], f.now)
    changes = [(name, checks[name]["state"], check) for name, check in judged.items() if check["state"] != checks[name]["state"]]
    texts = [
        f"Admission check {name} updated state from {before} to {check['state']} with message {check['message']}"
        for name, before, check in changes
    ]
    log = Log("checks of a workload", {"workload": f.facts.key, "states": {name: check["state"] for name, _, check in changes}})
    return Step(
        "judge checks",
        w.apply_admission(f.workload, status),
        tuple(Event(r.WORKLOADS, f.workload, ADMISSION_CHECK_UPDATED, text) for text in texts),
        log if changes else None,
    )


def _end_request(request: Obj, templates: Mapping[str, Obj]) -> Iterable[Step]:
    """The very request that was seen goes, after the PodTemplates that were made for it: a user may write requests that name others."""
    for name in _list_templates(request):
        there = templates.get(name)
        if there is not None and _is_for_same(there, request):
            yield Step("end template", w.Delete(r.POD_TEMPLATES, there), passes=_GONE)
    yield Step("end request", w.Delete(r.PROVISIONING_REQUESTS, request), passes=_GONE)


def _list_templates(request: Json) -> Sequence[str]:
    return [pod_set["podTemplateRef"]["name"] for pod_set in request["spec"].get("podSets") or ()]


def _is_for_same(one: Json, other: Json) -> bool:
    """Whether two objects were made to ask for the same nodes for the same workload."""
    return _read_purpose(one["metadata"]) == _read_purpose(other["metadata"])


def _read_purpose(metadata: Json) -> tuple[str | None, str | None]:
    uid = next((owner["uid"] for owner in metadata.get("ownerReferences") or () if owner.get("controller")), None)
    return uid, (metadata.get("annotations") or {}).get(PROVISIONING_CONTENT)
