"""The executor on an API server in memory: which failure holds up what, what each guard makes of a change, and what is left of a plan."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import pytest

from core.model.pause_state import Pause, Stop
from core.names import EVENT_STAYS_GATED
from core.plan.steps import api_resources as r
from core.plan.steps import writes as w
from core.plan.steps.steps import PASSED_OVER, Event, Hold, Log, MadeSteps, Overtaken, ParallelSteps, Plan, Step, make_plan
from core.resource import Obj
from core.runtime.controller import Done
from core.runtime.http.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, ServerError
from reconciler.execute.executor import Left, Paused
from sim.apiserver.server import Refused, Request
from sim.harness import Harness
from tests.builders import build_pod_set_json
from tests.runtime.fakes import ManualClock

REFUSED, FAILED = Refused(403, "Forbidden", "by a policy"), Refused(500, "InternalError", "away")


class Executing(Harness):
    """Three pods and a Workload; what `fails` names is refused."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.fails: dict[str, Refused] = {}
        self.on_write = self.check
        self.seen = {name: self.put({"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": []}}) for name in ("a", "b", "c")}
        self.seen["w"] = self.put(
            {"kind": "Workload", "metadata": {"name": "w"}, "spec": {"queueName": "q", "podSets": [build_pod_set_json()]}}
        )

    def check(self, request: Request) -> None:
        if request.name in self.fails:
            raise self.fails[request.name]

    def label(self, name: str, **more: Any) -> Step:
        """A step that labels a pod."""
        return Step(f"label {name}", w.Patch(r.PODS, self.seen[name], {"metadata": {"labels": {"x": "y"}}}), **more)

    def execute(self, plan: Plan) -> tuple[Left, KubeError | Paused | None]:
        """What is left, and the error."""
        left, errors = Left(), list[KubeError | Paused | None]()

        async def execute() -> None:
            try:
                assert await self.executor.execute(plan, left) == Done()
                errors.append(None)
            except (KubeError, Paused) as error:
                errors.append(error)

        self.wait_for(execute())
        return left, errors[0]

    @property
    def labelled(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.all("Pod") if pod["metadata"].get("labels")}


@pytest.mark.parametrize(
    ("hold", "failure", "goes_on"),
    [
        (Hold.ALWAYS, REFUSED, False),
        (Hold.ALWAYS, FAILED, False),
        (Hold.UNLESS_REFUSED, REFUSED, True),
        (Hold.UNLESS_REFUSED, FAILED, False),
        (Hold.NEVER, REFUSED, True),
        (Hold.NEVER, FAILED, True),
    ],
)
def test_failure_of_a_step_holds_up_the_others_as_the_step_says(hold: Hold, failure: Refused, goes_on: bool):
    harness = Executing()
    harness.fails = {"a": failure}
    left, error = harness.execute(make_plan(harness.label("a", holds_up=hold), harness.label("b")))
    assert isinstance(error, Forbidden if failure is REFUSED else ServerError), "in any case it is raised"
    assert harness.labelled == ({"b"} if goes_on else set())
    assert left.done == ({"label b"} if goes_on else set())


@pytest.mark.parametrize(("fails", "error"), [({}, None), ({"a": REFUSED}, Forbidden), ({"a": REFUSED, "b": FAILED}, ServerError)])
def test_steps_together_are_all_attempted_and_a_failure_outweighs_refusals(
    fails: dict[str, Refused], error: type[KubeError] | None, caplog: pytest.LogCaptureFixture
):
    harness = Executing()
    harness.fails = fails
    caplog.set_level("INFO")
    together = Step("label", ParallelSteps(tuple(harness.label(name) for name in ("a", "b", "c"))), log=Log("labelled", {"count": 3}))
    left, raised = harness.execute(make_plan(together))
    assert harness.labelled == {"a", "b", "c"} - fails.keys()
    assert raised is None if error is None else isinstance(raised, error)
    assert left.done == ({"label"} if error is None else set())
    (line,) = [record for record in caplog.records if record.getMessage() == "labelled"]
    assert (line.__dict__["count"], line.__dict__.get("failed", 0)) == (3, len(fails)), "what went is logged, whatever did not"


@pytest.mark.parametrize(
    ("hold", "failure", "goes_on"),
    [(Hold.ALWAYS, REFUSED, False), (Hold.UNLESS_REFUSED, REFUSED, True), (Hold.UNLESS_REFUSED, FAILED, False), (Hold.NEVER, FAILED, True)],
)
def test_failure_of_one_of_parallel_steps_holds_up_those_behind_it_as_the_step_says(hold: Hold, failure: Refused, goes_on: bool):
    harness = Executing()
    harness.fails = {"a": failure}
    behind = MadeSteps(("a", "b"), lambda name: harness.label(name, holds_up=hold))
    _, error = harness.execute(make_plan(Step("label", ParallelSteps((behind, harness.label("c"))))))
    assert isinstance(error, Forbidden if failure is REFUSED else ServerError)
    assert harness.labelled == ({"b", "c"} if goes_on else {"c"})


@pytest.mark.parametrize("fault", [RuntimeError, IndexError])
@pytest.mark.parametrize("at", ["a", "c"])
def test_fault_in_one_of_parallel_steps_is_raised_once_all_others_are_answered(at: str, fault: type[Exception]):
    """Former defects: writes that were under way were cut off, and nobody knew what had become of them; those behind were not tried, and a
    step that could not be made for want of an index counted as the last one, without any error."""
    harness = Executing()

    def make(name: str) -> Step:
        if name == at:
            raise fault("odd")
        return harness.label(name)

    with pytest.raises(fault):
        harness.execute(make_plan(Step("label", ParallelSteps(MadeSteps(("a", "b", "c"), make)))))
    assert harness.labelled == {"a", "b", "c"} - {at}


def test_fault_in_steps_that_follow_one_another_beside_others_is_raised():
    """Former defect: a step that could not be made for want of an index counted as the last one."""
    harness = Executing()
    behind = MadeSteps(("a", "b"), lambda name: [harness.label(name)][0 if name == "a" else 1])
    with pytest.raises(IndexError):
        harness.execute(make_plan(Step("label", ParallelSteps((behind, harness.label("c"))))))
    assert harness.labelled == {"a", "c"}


def test_refusal_is_reported_where_the_step_says_how():
    harness = Executing()
    harness.fails = {"a": Refused(422, "Invalid", "x" * 1000)}

    def explain(message: str) -> Event:
        return Event(r.PODS, harness.seen["a"], EVENT_STAYS_GATED, message, warning=True)

    _, error = harness.execute(make_plan(harness.label("a", if_refused=explain)))
    assert isinstance(error, Invalid)
    (event,) = harness.events
    assert (event.reason, event.key) == (EVENT_STAYS_GATED, "ns/a")
    assert len(event.message) == 300


def test_change_that_a_step_passes_over_is_no_failure_and_it_is_not_done():
    harness = Executing()
    harness.delete("Pod", "a", gracePeriodSeconds=0)
    left, error = harness.execute(make_plan(harness.label("a", passes=PASSED_OVER), harness.label("b")))
    assert error is None
    assert left.done == {"label b"}
    assert isinstance(harness.execute(make_plan(harness.label("a")))[1], NotFound)


@pytest.mark.parametrize(("reason", "error"), [("AlreadyExists", None), ("Conflict", Conflict)])
def test_create_passes_over_an_object_of_its_name_and_over_no_other_conflict(reason: str, error: type[KubeError] | None):
    harness = Executing()
    harness.fails[""] = Refused(409, reason, 'resourcequotas "count": the object has been modified')
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new", "namespace": "ns"}, "spec": {"containers": []}}
    _, raised = harness.execute(make_plan(Step("make", w.Create(r.PODS, made), passes=frozenset({Overtaken.CHANGED}))))
    assert type(raised) is (error or type(None))


@pytest.mark.parametrize("passes", [frozenset[Overtaken](), frozenset(Overtaken)])
def test_pause_holds_up_a_plan_unless_the_step_passes_over_it(passes: frozenset[Overtaken]):
    harness = Executing()
    workload = harness.get("Workload", "w")
    admission = {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 1, "flavors": {}}]}
    conditions = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
    workload = harness.put({**workload, "kind": "Workload", "status": {"admission": admission, "conditions": conditions}})
    harness.observed.state.observe_pause(Pause(evictions=Stop("evictions", "me", "now", "because")))
    evict = Step("evict", w.deactivate(workload, "Because"), passes=passes)
    left, error = harness.execute(make_plan(evict, harness.label("b")))
    assert (error is None) == bool(passes)
    assert left.done == ({"label b"} if passes else set())
    assert harness.get("Workload", "w")["spec"].get("active", True)


def admit(workload: Obj) -> Step:
    """A status that was decided on for a Workload as it was seen."""
    status = {
        "conditions": [
            {"type": "QuotaReserved", "status": "False", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ]
    }
    write = w.apply_admission(workload, status)
    return Step("admit", w.Apply(write.resource, write.seen, write.body, write.manager, w.Guard.AS_JUDGED))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"metadata": {"annotations": {"x": "y"}}}, None),
        ({"spec": {"priority": 7}}, Conflict),
        ({"status": {"conditions": [{"type": "Evicted", "status": "True", "reason": "R", "message": "m"}]}}, Conflict),
        ({"metadata": {"uid": "another"}}, NotFound),
    ],
    ids=["an annotation", "what is asked for", "what decisions own", "another object"],
)
def test_write_as_judged_goes_on_unless_the_judged_part_has_changed(change: dict[str, Any], error: type[KubeError] | None):
    harness = Executing()
    workload = harness.get("Workload", "w")
    harness.late = {"Workload"}
    changed = {name: {**workload.get(name, {}), **change.get(name, {})} for name in ("metadata", "spec", "status")}
    if "spec" in change:
        changed["metadata"]["generation"] = workload["metadata"]["generation"] + 1
    changed["metadata"].pop("resourceVersion")
    harness.put({"kind": "Workload", **changed})
    left, raised = harness.execute(make_plan(admit(workload)))
    assert raised is None if error is None else isinstance(raised, error)
    assert left.done == ({"admit"} if error is None else set())


def test_pause_of_one_of_parallel_steps_holds_up_no_other():
    harness = Executing()
    workload = harness.get("Workload", "w")
    admission = {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 1, "flavors": {}}]}
    conditions = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
    workload = harness.put({**workload, "kind": "Workload", "status": {"admission": admission, "conditions": conditions}})
    harness.observed.state.observe_pause(Pause(evictions=Stop("evictions", "me", "now", "because")))
    steps = Step("deactivate", w.deactivate(workload, "Because")), harness.label("a")
    left, error = harness.execute(make_plan(Step("both", ParallelSteps(steps), holds_up=Hold.NEVER), harness.label("b")))
    assert isinstance(error, Paused)
    assert harness.labelled == {"a", "b"}
    assert list(left.failed) == [(r.WORKLOADS, "ns/w")]


@pytest.mark.parametrize(("failure", "unsure"), [(REFUSED, set[str]()), (FAILED, {"ns/a"})])
def test_rest_of_a_plan_after_a_failure_gets_the_keys_that_were_not_refused(failure: Refused, unsure: set[str]):
    harness, asked = Executing(), list[Collection[str]]()
    harness.fails = {"a": failure}

    def follow(keys: Collection[str], _: datetime) -> Plan:
        asked.append(keys)
        return make_plan(harness.label("c"))

    step = Step("label", ParallelSteps((harness.label("a"), harness.label("b"))), holds_up=Hold.NEVER)
    left, error = harness.execute(Plan((step,), rest=follow))
    assert isinstance(error, Forbidden if failure is REFUSED else ServerError)
    assert (asked, harness.labelled, left.done) == ([unsure], {"b", "c"}, {"label c"})
