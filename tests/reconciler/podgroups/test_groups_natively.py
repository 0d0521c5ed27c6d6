"""Groups that are handed over to kube-scheduler: what is made for it, what is said, and that nothing is done to its pods."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import MEMBER_OF_LABEL, PAUSE_CONFIG_MAP, POD_GROUP_VERIFIED, SYSTEM_NAMESPACE
from core.resource import Obj
from core.runtime.http.errors import Unreachable
from sim.apiserver.server import Refused, Request
from tests.builders import BLOCK, RACK
from tests.reconciler.harness_groups import GroupsHarness

KUBERNETES, NATIVE = "scheduling.k8s.io/v1alpha2", "PodGroup.scheduling.k8s.io"


class NativeHarness(GroupsHarness):
    """With kube-scheduler's own PodGroups, as far as they are served."""

    def __init__(self) -> None:
        super().__init__({"r1": (2, 2), "r2": (1,)})
        assert self.observed.native is not None
        self.native = self.observed.native

    def own(self, group: Obj) -> None:
        self.put({**group, "metadata": {"uid": "native", **group["metadata"]}})

    def owned(self) -> dict[str, Any]:
        return {group["metadata"]["name"]: group["spec"] for group in self.all(NATIVE)}

    def join(self, *names: str, group: str = "g", labelled: bool = True) -> None:
        for name in names:
            self.add(name, group=group, schedulingGates=[], schedulingGroup={"podGroupName": group})
            if not labelled:
                self.unlabel(name)

    def unlabel(self, name: str) -> None:
        self.change(name, labels={key: value for key, value in self.pods[name]["metadata"]["labels"].items() if key != MEMBER_OF_LABEL})

    def put_on(self, **nodes: str) -> None:
        for name, node in nodes.items():
            self.change(name, spec={**self.pods[name]["spec"], "nodeName": node}, status={"phase": "Running"})


def test_it_is_handed_over_waited_for_and_verified():
    harness = NativeHarness()
    harness.gang(3)
    harness.join("p0", "p1", "p2")
    harness.look()
    assert harness.owned() == {"g": {"schedulingPolicy": {"gang": {"minCount": 3}}, "schedulingConstraints": {"topology": [{"key": RACK}]}}}
    assert harness.says[:2] == ("False", "HandedOver")
    harness.put_on(p0="r1-0", p1="r1-0", p2="r1-1")
    harness.look()
    assert harness.says[:2] == ("True", "Scheduled")
    assert all(part in harness.says[2] for part in ("kube-scheduler", "3 pods", "r1"))
    assert harness.steps == [], "nothing is done to its pods"


def test_one_that_it_does_not_place_is_explained_after_a_while():
    harness = NativeHarness()
    harness.gang(5)
    harness.join("p0", "p1", "p2", "p3", "p4")
    harness.look()
    harness.clock.time += 5
    harness.look()
    status, reason, message = harness.says
    assert (status, reason) == ("False", "Unschedulable")
    assert all(part in message for part in ("0 of 5 pods", "2 placements", "takes 4"))
    assert harness.steps == []


def test_group_that_kube_scheduler_cannot_express_is_invalid_and_no_native_pod_group_is_created():
    harness = NativeHarness()
    harness.group({"gang": {"minCount": 2}}, schedulingConstraints={"topologyConstraints": [{"level": BLOCK}, {"level": RACK}]})
    harness.join("p0", "p1")
    harness.look()
    assert harness.owned() == {}
    assert harness.says[1] == "Invalid"
    assert "2 levels" in harness.says[2]


def test_where_it_is_not_served_that_is_said():
    harness = NativeHarness()
    harness.native.are_missing = True
    harness.gang(1)
    harness.join("p0")
    harness.look()
    assert harness.says[:2] == ("False", "Invalid")
    assert f"podgroups, workloads of {KUBERNETES}" in harness.says[2]


def test_native_pod_group_that_the_api_server_forbids_is_reported_as_refused():
    harness = NativeHarness()

    def forbid(request: Request) -> None:
        if request.verb == "create":
            raise Refused(403, "Forbidden", "not you")

    harness.on_write = forbid
    harness.gang(1)
    harness.join("p0")
    harness.look()
    assert harness.says[1] == "Refused"
    assert "not you" in harness.says[2]


def foreign(level: str | None, minimum: int = 2) -> Obj:
    spec: Obj = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    if level is not None:
        spec["schedulingConstraints"] = {"topology": [{"key": level}]}
    return {"apiVersion": KUBERNETES, "kind": "PodGroup", "metadata": {"name": "theirs"}, "spec": spec}


def test_kube_schedulers_own_groups_are_verified_beside_its_word():
    harness = NativeHarness()
    group = foreign(RACK)
    group["status"] = {"conditions": [{"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": "fits"}]}
    harness.own(group)
    harness.join("p0", "p1", group="theirs", labelled=False)
    harness.put_on(p0="r1-0", p1="r2-0")
    harness.look("theirs")
    assert harness.says[:2] == ("False", "Scattered")
    assert all(part in harness.says[2] for part in ("2 pods", f"no one {RACK}", "r1 1, r2 1"))
    assert [condition["type"] for condition in harness.conditions[-1]] == [POD_GROUP_VERIFIED], "what kube-scheduler says stays its own"


def test_those_without_a_constraint_are_none_of_topogates_business():
    harness = NativeHarness()
    harness.own(foreign(None))
    harness.join("p0", "p1", group="theirs", labelled=False)
    harness.look("theirs")
    assert harness.told == []


def test_pods_with_the_gate_are_let_go_where_their_group_has_no_constraint():
    harness = NativeHarness()
    harness.own(foreign(None))
    harness.add("p0", group="theirs", schedulingGroup={"podGroupName": "theirs"})
    harness.settle("theirs")
    assert set(harness.where()) == {"p0"}


@pytest.mark.parametrize("level", [None, RACK])
def test_groups_that_are_gone_with_their_pods_leave_nothing_behind(level: str | None):
    harness = NativeHarness()
    harness.own(foreign(level))
    harness.add("p0", "p1", group="theirs", schedulingGroup={"podGroupName": "theirs"})
    harness.settle("theirs")
    harness.drop(NATIVE, "theirs")
    for name in ("p0", "p1"):
        harness.drop("Pod", name)
    harness.look("theirs")
    remembered = {**vars(harness.groups), **vars(harness.groups._conditions)}
    assert [name for name, value in remembered.items() if type(value) is dict and value] == []


@pytest.mark.parametrize("labelled", [True, False])
def test_pods_with_the_gate_are_topogates_though_the_group_is_kube_schedulers(labelled: bool):
    harness = NativeHarness()
    harness.own(foreign(RACK))
    harness.add("p0", "p1", group="theirs", schedulingGroup={"podGroupName": "theirs"})
    for name in () if labelled else ("p0", "p1"):
        harness.unlabel(name)
    harness.settle("theirs")
    assert {node[:2] for node in harness.where().values()} == {"r1"}


def test_gang_that_was_partly_ungated_before_a_restart_is_ungated_completely():
    """As after a kill between two of its pods: what was let go is topogate's, too."""
    harness = NativeHarness()
    harness.gang(3)
    harness.add("p0", "p1", "p2", schedulingGroup={"podGroupName": "g"})
    harness.look()

    def ends(what: str, name: str) -> None:
        if what == "let go" and name == "p1":
            raise Unreachable("killed")

    harness.on_step = ends
    harness.look()
    assert harness.pods["p1"]["spec"]["schedulingGates"]
    anew = NativeHarness()
    anew.gang(3)
    for pod in harness.pods.values():
        anew.put(pod)
    anew.settle()
    assert len(anew.where()) == 3
    anew.bind()
    anew.add("p3", schedulingGroup={"podGroupName": "g"})
    anew.settle()
    assert len(anew.where()) == 4, "those that come later, too"
    assert anew.owned() == {}, "nothing is handed over"


def test_one_that_others_made_of_the_same_name_is_not_taken_for_its_own():
    harness = NativeHarness()
    harness.own({**foreign(RACK), "metadata": {"name": "g"}})
    harness.gang(2)
    harness.join("p0", "p1")
    harness.look()
    assert harness.says[1] == "Invalid"
    assert f"PodGroup g of {KUBERNETES}" in harness.says[2]


def test_group_changed_after_it_was_handed_to_kube_scheduler_reports_the_difference():
    harness = NativeHarness()
    harness.gang(2)
    harness.join("p0", "p1")
    harness.look()
    harness.put_on(p0="r1-0", p1="r1-0")
    harness.gang(1)
    harness.look()
    assert harness.owned()["g"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    assert all(part in harness.says[2] for part in ("2 pods in r1", f"PodGroup g of {KUBERNETES}"))


def test_nothing_is_handed_over_while_admissions_are_paused():
    harness = NativeHarness()
    metadata = {"name": PAUSE_CONFIG_MAP, "namespace": SYSTEM_NAMESPACE}
    harness.put({"kind": "ConfigMap", "metadata": metadata, "data": {"admissions": '{"by": "ann"}'}})
    harness.gang(2)
    harness.join("p0", "p1")
    harness.look()
    assert harness.owned() == {}
    assert harness.says[1] == "AdmissionsPaused"


def test_a_constraint_that_was_lost_between_template_and_group_is_told():
    harness = NativeHarness()
    group = foreign(None)
    group["spec"]["podGroupTemplateRef"] = {"workload": {"workloadName": "run", "podGroupTemplateName": "workers"}}
    harness.own(group)
    harness.join("p0", "p1", group="theirs", labelled=False)
    harness.look("theirs")
    assert harness.told == [], "of what nobody knows nothing is said"
    template = {"name": "workers", "schedulingConstraints": {"topology": [{"key": RACK}]}}
    harness.put({"apiVersion": KUBERNETES, "kind": "Workload", "metadata": {"name": "run"}, "spec": {"podGroupTemplates": [template]}})
    harness.look("theirs")
    assert harness.says[:2] == ("False", "ConstraintLost")
    assert all(part in harness.says[2] for part in ("template workers of Workload run", f"one {RACK}"))
    assert [condition["type"] for condition in harness.conditions[-1]] == [POD_GROUP_VERIFIED]
