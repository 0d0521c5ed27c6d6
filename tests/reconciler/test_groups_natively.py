"""Groups that are handed over to kube-scheduler, on paper: what is made for it, what is said, and that nothing is done to its pods."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import MEMBER_OF_LABEL, PAUSE_CONFIG_MAP, POD_GROUP_VERIFIED, SYSTEM_NAMESPACE
from core.runtime.errors import Forbidden, Unreachable
from core.runtime.resource import Obj
from tests.builders import BLOCK, RACK
from tests.reconciler.paper_groups import NAMESPACE, PaperGroups

KUBERNETES = "scheduling.k8s.io/v1alpha2"


class Paper(PaperGroups):
    """With kube-scheduler's own PodGroups, as far as they are served."""

    def __init__(self) -> None:
        super().__init__({"r1": (2, 2), "r2": (1,)})
        self.is_forbidden = False
        assert self.observed.native is not None
        self.native = self.observed.native

    async def hand_over(self, group: Obj) -> None:
        if self.is_forbidden:
            raise Forbidden(403, "Forbidden", "not you")
        self.own(group)

    def own(self, group: Obj) -> None:
        metadata = {"uid": "native", "resourceVersion": str(next(self._versions)), **group["metadata"]}
        self.native.pod_groups.put({**group, "metadata": metadata})

    def owned(self) -> dict[str, Any]:
        return {group["metadata"]["name"]: group["spec"] for group in self.native.pod_groups.store.list()}

    def join(self, *names: str, group: str = "g", labelled: bool = True) -> None:
        for name in names:
            self.add(name, group=group, schedulingGates=[], schedulingGroup={"podGroupName": group})
            if not labelled:
                self.unlabel(name)

    def unlabel(self, name: str) -> None:
        self.change(name, labels={key: value for key, value in self.pods[name]["metadata"]["labels"].items() if key != MEMBER_OF_LABEL})

    def put_on(self, **nodes: str) -> None:
        for name, node in nodes.items():
            self.pods[name]["spec"]["nodeName"] = node
            self.change(name, status={"phase": "Running"})


def test_it_is_handed_over_waited_for_and_verified():
    paper = Paper()
    paper.gang(3)
    paper.join("p0", "p1", "p2")
    paper.look()
    assert paper.owned() == {"g": {"schedulingPolicy": {"gang": {"minCount": 3}}, "schedulingConstraints": {"topology": [{"key": RACK}]}}}
    assert paper.says == ("False", "HandedOver", "kube-scheduler looks for a place")
    paper.put_on(p0="r1-0", p1="r1-0", p2="r1-1")
    paper.look()
    assert paper.says == ("True", "Scheduled", "kube-scheduler has bound 3 pod(s) in r1")
    assert paper.writes == [], "nothing is done to its pods"


def test_one_that_it_does_not_place_is_explained_after_a_while():
    paper = Paper()
    paper.gang(5)
    paper.join("p0", "p1", "p2", "p3", "p4")
    paper.look()
    paper.clock.time += 5
    paper.look()
    status, reason, message = paper.says
    assert (status, reason) == ("False", "Unschedulable")
    assert message.startswith("kube-scheduler has bound 0 of 5 pod(s): none of 2 placement(s) takes 5 pod(s), the best takes 4")
    assert paper.writes == []


def test_what_it_cannot_be_told_is_said_and_nothing_is_made():
    paper = Paper()
    paper.group({"gang": {"minCount": 2}}, schedulingConstraints={"topologyConstraints": [{"level": BLOCK}, {"level": RACK}]})
    paper.join("p0", "p1")
    paper.look()
    assert paper.owned() == {}
    assert paper.says[1] == "Invalid"
    assert "kube-scheduler's own PodGroup has no 2 levels (it takes one)" in paper.says[2]


def test_where_it_is_not_served_that_is_said():
    paper = Paper()
    paper.native.are_missing = True
    paper.gang(1)
    paper.join("p0")
    paper.look()
    assert paper.says == ("False", "Invalid", f"the API server does not serve podgroups, workloads of {KUBERNETES}")


def test_what_the_api_server_refuses_is_told():
    paper = Paper()
    paper.is_forbidden = True
    paper.gang(1)
    paper.join("p0")
    paper.look()
    assert paper.says[1] == "Refused"
    assert "not you" in paper.says[2]


def foreign(level: str | None, minimum: int = 2) -> Obj:
    spec: Obj = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    if level is not None:
        spec["schedulingConstraints"] = {"topology": [{"key": level}]}
    return {"apiVersion": KUBERNETES, "kind": "PodGroup", "metadata": {"name": "theirs", "namespace": NAMESPACE}, "spec": spec}


def test_kube_schedulers_own_groups_are_verified_beside_its_word():
    paper = Paper()
    group = foreign(RACK)
    group["status"] = {"conditions": [{"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": "fits"}]}
    paper.own(group)
    paper.join("p0", "p1", group="theirs", labelled=False)
    paper.put_on(p0="r1-0", p1="r2-0")
    paper.look("theirs")
    assert paper.says == ("False", "Scattered", f"kube-scheduler has bound 2 pod(s) in no one {RACK}: r1 1, r2 1")
    assert paper.kinds[-1] == [POD_GROUP_VERIFIED], "what kube-scheduler says stays its own"


def test_those_without_a_constraint_are_none_of_topogates_business():
    paper = Paper()
    paper.own(foreign(None))
    paper.join("p0", "p1", group="theirs", labelled=False)
    paper.look("theirs")
    assert paper.told == []


def test_pods_with_the_gate_are_let_go_where_their_group_has_no_constraint():
    paper = Paper()
    paper.own(foreign(None))
    paper.add("p0", group="theirs", schedulingGroup={"podGroupName": "theirs"})
    paper.settle("theirs")
    assert set(paper.where()) == {"p0"}


@pytest.mark.parametrize("labelled", [True, False])
def test_pods_with_the_gate_are_topogates_though_the_group_is_kube_schedulers(labelled: bool):
    paper = Paper()
    paper.own(foreign(RACK))
    paper.add("p0", "p1", group="theirs", schedulingGroup={"podGroupName": "theirs"})
    for name in () if labelled else ("p0", "p1"):
        paper.unlabel(name)
    paper.settle("theirs")
    assert {node[:2] for node in paper.where().values()} == {"r1"}


def test_a_gang_with_the_gate_is_let_go_to_the_end_whoever_began():
    """As after a kill between two of its pods: what was let go is topogate's, too."""
    paper = Paper()
    paper.gang(3)
    paper.add("p0", "p1", "p2", schedulingGroup={"podGroupName": "g"})
    paper.look()

    def ends(what: str, name: str) -> None:
        if what == "let go" and name == "p1":
            raise Unreachable("killed")

    paper.on_write = ends
    paper.look()
    assert paper.pods["p1"]["spec"]["schedulingGates"]
    anew = Paper()
    anew.gang(3)
    for pod in paper.pods.values():
        anew.put(pod)
    anew.settle()
    assert len(anew.where()) == 3
    anew.bind()
    anew.add("p3", schedulingGroup={"podGroupName": "g"})
    anew.settle()
    assert len(anew.where()) == 4, "those that come later, too"
    assert anew.owned() == {}, "nothing is handed over"


def test_one_that_others_made_of_the_same_name_is_not_taken_for_its_own():
    paper = Paper()
    paper.own({**foreign(RACK), "metadata": {"name": "g", "namespace": NAMESPACE}})
    paper.gang(2)
    paper.join("p0", "p1")
    paper.look()
    assert paper.says[1:] == (
        "Invalid",
        f"PodGroup g of {KUBERNETES}, by which kube-scheduler would place the pods, was not made for this one: delete either",
    )


def test_what_was_handed_over_and_is_no_longer_so_is_told():
    paper = Paper()
    paper.gang(2)
    paper.join("p0", "p1")
    paper.look()
    paper.put_on(p0="r1-0", p1="r1-0")
    paper.gang(1)
    paper.look()
    assert paper.owned()["g"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    assert paper.says[2] == (
        "kube-scheduler has bound 2 pod(s) in r1; "
        f"PodGroup g of {KUBERNETES} says what this one did when it was handed over, and cannot be changed"
    )


def test_nothing_is_handed_over_while_admissions_are_paused():
    paper = Paper()
    metadata = {"name": PAUSE_CONFIG_MAP, "namespace": SYSTEM_NAMESPACE, "uid": "p", "resourceVersion": "1"}
    paper.observed.pauses.put({"metadata": metadata, "data": {"admissions": '{"by": "ann"}'}})
    paper.gang(2)
    paper.join("p0", "p1")
    paper.look()
    assert paper.owned() == {}
    assert paper.says[1] == "AdmissionsPaused"


def test_a_constraint_that_was_lost_between_template_and_group_is_told():
    paper = Paper()
    group = foreign(None)
    group["spec"]["podGroupTemplateRef"] = {"workload": {"workloadName": "run", "podGroupTemplateName": "workers"}}
    paper.own(group)
    paper.join("p0", "p1", group="theirs", labelled=False)
    paper.look("theirs")
    assert paper.told == [], "of what nobody knows nothing is said"
    template = {"name": "workers", "schedulingConstraints": {"topology": [{"key": RACK}]}}
    metadata = {"name": "run", "namespace": NAMESPACE, "uid": "run", "resourceVersion": "1"}
    paper.native.workloads.put({"metadata": metadata, "spec": {"podGroupTemplates": [template]}})
    paper.look("theirs")
    assert paper.says[:2] == ("False", "ConstraintLost")
    assert paper.says[2] == (
        f"template workers of Workload run asks for one {RACK}, which whoever made the PodGroup left out: its pods go anywhere"
    )
    assert paper.kinds[-1] == [POD_GROUP_VERIFIED]
