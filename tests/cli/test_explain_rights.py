"""`topogate explain` with a user's own rights, and `explain --watch`, beside an API server that answers as told."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any
from urllib.parse import parse_qs

import pytest
import typer

from cli import commands
from core.names import EVENT_UPDATED_WORKLOAD
from core.plan.steps import api_resources as r
from core.plan.workloads.desired_workload import describe_changes
from core.resource import Resource
from tests.cli.commands import RACK, Commands, Obj, build_job, build_nodes, build_queues
from tests.cli.lives import build_queued_job, decide_documents
from tests.cli.test_api_answers import Answer, build_status, build_warning, complete_all, serve_answers, write_kubeconfig
from tests.cli.test_explained_kinds import MAIN, build_cron_job, build_deployment
from tests.long import mark_long
from tests.runtime.fakes import ManualClock

GROUPS: Answer = (200, {"groups": [{"name": name} for name in ("batch", "apps", "kueue.x-k8s.io")]})
IN_NAMESPACE = (r.WORKLOADS, r.LOCAL_QUEUES, r.PODS, r.EVENTS, Resource("batch", "v1", "jobs", "Job"), r.CRON_JOBS, r.DEPLOYMENTS)
EVERYWHERE = (*IN_NAMESPACE, r.CLUSTER_QUEUES, r.RESOURCE_FLAVORS, r.TOPOLOGIES, r.NODES, r.NAMESPACES)


def build_documents() -> list[Obj]:
    """`first` runs, `large` waits for a rack of five nodes, `other` of another namespace, too."""
    jobs = [d for name, pods in (("first", 2), ("large", 5)) for d in build_queued_job(build_job(name, pods, required=RACK))]
    documents = decide_documents([*build_nodes(), *build_queues(), *jobs])
    namespace = {"kind": "Namespace", "metadata": {"name": "default", "labels": {}}}
    return [complete_all(document) for document in [*documents, namespace]]


def serve(
    documents: list[Obj], namespace: str | None, resources: tuple[Resource, ...], asked: list[str] | None = None
) -> Callable[[str], Answer]:
    """Answers to a user that may list `resources`, in one namespace or everywhere (None)."""

    def answer(path: str) -> Answer:
        address, _, query = path.partition("?")
        if asked is not None:
            asked.append(address)
        if address == "/apis" or (address.startswith("/apis/") and address.count("/") == 3):
            return GROUPS  # and of a group no resources
        selector = parse_qs(query).get("fieldSelector", [""])[0]
        for resource in resources:
            found = [d for d in documents if d["kind"] == resource.kind]
            if selector.startswith("metadata.name="):
                found = [d for d in found if d["metadata"]["name"] == selector.partition("=")[2]]
            if selector.startswith("involvedObject.uid="):
                found = [d for d in found if d.get("involvedObject", {}).get("uid") == selector.partition("=")[2]]
            if namespace is not None and address == resource.build_path(namespace) and resource.namespaced:
                return 200, {
                    "items": [d for d in found if d["metadata"].get("namespace") == namespace],
                    "metadata": {"resourceVersion": "1"},
                }
            if namespace is None and address in (resource.build_path(), resource.build_path("default")):
                return 200, {"items": found, "metadata": {"resourceVersion": "1"}}
        return (200, {"items": [], "metadata": {"resourceVersion": "1"}}) if namespace is None else build_status(403, "Forbidden", "raw")

    return answer


def run(topogate: Commands, answer: Callable[[str], Answer], *words: str) -> Any:
    with serve_answers(answer) as url:
        return topogate.run("explain", *words, "--kubeconfig", write_kubeconfig(topogate, url))


def test_user_of_one_namespace_sees_the_condition_of_a_job_and_the_role_for_the_rest(topogate: Commands):
    """It ended in the raw refusal of the first list that needed more."""
    documents = build_documents()
    condition = next(d for d in documents if d["kind"] == "Workload" and "large" in d["metadata"]["name"])["status"]["conditions"][0]
    answer = serve(documents, "default", IN_NAMESPACE)
    for words in (["job", "large"], ["job/large"]):
        ran = run(topogate, answer, *words)
        assert (ran.code, ran.err) == (0, "")
        assert "state: waiting\n" in ran.out
        assert condition["message"] in ran.out
        assert "position: 1 of 1 in the LocalQueue\n" in ran.out
        assert "not shown: you may not list nodes, " in ran.out
        assert "topogate-observer" in ran.out
        assert "now:" not in ran.out
        assert "raw" not in ran.out
    report = run(topogate, answer, "job", "large", "-o", "json").data
    assert report["turn"] == {"localPosition": 1, "localWaiting": 1, "before": [], "beforeCount": 0}
    assert "now" not in report
    assert len(report["notRead"]) == 1


def test_user_of_one_namespace_sees_the_place_of_an_admitted_job(topogate: Commands):
    report = run(topogate, serve(build_documents(), "default", IN_NAMESPACE), "job", "first", "-o", "json").data
    assert report["state"] == "admitted"
    assert [domain["count"] for domain in report["podSets"][0]["domains"]] == [1, 1]
    assert report["pods"] == {"bound": 0, "gated": 0, "live": 0}


@pytest.mark.parametrize(
    ("words", "role"),
    [
        (["node", "n-0-0-0"], "topogate-observer"),
        (["clusterqueue", "research"], "topogate-observer"),
        (["statefulset", "x"], "view"),
    ],
)
def test_user_without_a_right_is_shown_the_role_in_one_line(topogate: Commands, words: list[str], role: str):
    ran = run(topogate, serve(build_documents(), "default", IN_NAMESPACE), *words)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("\n") == 1
    assert f"ClusterRole {role}" in ran.err
    assert "raw" not in ran.err


def test_user_without_any_right_is_shown_the_role_of_workloads_in_one_line(topogate: Commands):
    ran = run(
        topogate,
        lambda path: GROUPS if path == "/apis" or (path.count("/") == 3 and "?" not in path) else build_status(403, "Forbidden", "raw"),
        "job",
        "large",
    )
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "topogate-viewer" in ran.err
    assert "RoleBinding in namespace default" in ran.err
    assert "raw" not in ran.err


def test_local_queue_and_cron_job_are_explained_with_rights_in_one_namespace(topogate: Commands):
    documents = build_documents()
    local = next(d for d in documents if d["kind"] == "LocalQueue")
    local["status"] = {
        "conditions": [{"type": "Active", "status": "False", "reason": "ClusterQueueIsInactive", "message": "it is stopped"}]
    }
    documents.append(complete_all(build_cron_job(MAIN, {})))
    documents[-1]["metadata"]["namespace"] = "default"
    answer = serve(documents, "default", IN_NAMESPACE)
    report = run(topogate, answer, "localqueue", "main", "-o", "json").data
    assert (report["state"], report["inactive"]["message"]) == ("inactive", "it is stopped")
    assert [row["job"]["name"] for row in report["queue"]["waiting"]["workloads"]] == ["large"]
    report = run(topogate, answer, "cronjob", "nightly", "-o", "json").data
    assert report["state"] == "not queued"
    del local["status"]
    assert run(topogate, answer, "localqueue", "main", "-o", "json").data["state"] == "not known"


def test_position_is_not_known_where_local_queues_of_other_namespaces_may_not_be_read(topogate: Commands):
    """Workloads of other namespaces had no queue then, and did not count as before it."""
    documents = build_documents()
    documents.append(deepcopy(next(d for d in documents if d["kind"] == "Workload" and "large" in d["metadata"]["name"])))
    documents[-1]["metadata"] |= {"name": "before", "namespace": "other", "uid": "before"}
    documents[-1]["spec"]["priority"] = 100
    everywhere, here = serve(documents, None, EVERYWHERE), serve(documents, "default", (r.LOCAL_QUEUES,))
    report = run(topogate, lambda path: (here if "localqueues" in path else everywhere)(path), "localqueue", "main", "-o", "json").data
    (row,) = report["queue"]["waiting"]["workloads"]
    assert (row["job"]["name"], row["position"], row["localPosition"]) == ("large", None, 1)
    assert "before" not in str(report)


@pytest.mark.parametrize(("kind", "name", "hidden"), [("cronjob", "nightly", "jobs.batch"), ("deployment", "web", "replicasets.apps")])
def test_owner_of_jobs_or_pods_without_a_right_to_list_them_reports_not_known(topogate: Commands, kind: str, name: str, hidden: str):
    documents = build_documents()
    for document in (build_cron_job(MAIN, MAIN), build_deployment(MAIN)):
        documents.append(complete_all(document))
        documents[-1]["metadata"]["namespace"] = "default"
    rights = tuple(each for each in (*IN_NAMESPACE, r.REPLICA_SETS) if str(each) != hidden)
    ran = run(topogate, serve(documents, "default", rights), kind, name, "-o", "json")
    assert not {"jobs", "pods", "states"}.intersection(ran.data)
    assert ran.data["wouldHelp"] == []
    assert f"you may not list {hidden}, " in ran.data["notRead"][0]
    text = run(topogate, serve(documents, "default", rights), kind, name).out
    assert f"{'jobs' if kind == 'cronjob' else 'pods'}: not known" in text


def test_administrator_sees_all_and_no_role(topogate: Commands):
    answer = serve(build_documents(), None, EVERYWHERE)
    report = run(topogate, answer, "job", "large", "-o", "json").data
    assert "notRead" not in report
    assert report["now"]["outcome"] == "waits"
    assert run(topogate, answer, "node", "n-0-0-0", "-o", "json").data["state"] == "usable"


def test_last_change_of_a_user_is_shown_with_the_position_before_it(topogate: Commands):
    documents = [complete_all(d) for d in [*build_nodes(), *build_queues(), {"kind": "Namespace", "metadata": {"name": "default"}}]]
    for name, priority in (("raised", 1000), ("other", 5), ("third", 7)):
        documents += [complete_all(d) for d in build_queued_job(build_job(name, 5, required=RACK), priority)]
    job = next(d for d in documents if d["kind"] == "Job" and d["metadata"]["name"] == "raised")
    workload = next(d for d in documents if d["kind"] == "Workload" and "raised" in d["metadata"]["name"])
    message = describe_changes({"spec": {"queueName": "main"}}, {"priority": 1000, "priorityClassRef": {}}, ())
    assert message == "Updated Workload: priority 0 -> 1000, priorityClassRef"
    event = build_warning("Job", job["metadata"]["uid"], EVENT_UPDATED_WORKLOAD, message, 7, type="Normal")
    answer = serve([*documents, event], None, (*EVERYWHERE, r.EVENTS))
    report = run(topogate, answer, "job", "raised", "-o", "json").data
    assert workload["spec"]["priority"] == 1000
    assert report["turn"]["position"] == 1
    assert report["lastChange"] == {"message": message, "time": "2026-02-03T04:06:07", "formerPosition": 3}
    shown = run(topogate, answer, "job", "raised").out
    assert f"last change by its user: {message} (2026-02-03T04:06:07); with its former priority its position would be 3\n" in shown
    assert "lastChange" not in run(topogate, answer, "job", "other", "-o", "json").data


# --- watching -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", mark_long([None, "json", "yaml"], but={0}))
def test_watched_object_is_printed_again_only_when_the_answer_has_changed(
    topogate: Commands, monkeypatch: pytest.MonkeyPatch, form: str | None
):
    documents, slept = build_documents(), list[float]()
    first = deepcopy(documents)

    class Clock(ManualClock):
        async def sleep(self, seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 2:  # two reads are equal, the third is not
                next(d for d in documents if d["kind"] == "Workload" and "large" in d["metadata"]["name"])["spec"]["priority"] = 77
            if len(slept) == 3:  # the object is gone for two reads, and comes back
                documents[:] = [d for d in first if "large" not in d["metadata"]["name"]]
            if len(slept) == 5:
                documents[:] = first
            if len(slept) == 6:
                raise typer.Abort

    monkeypatch.setattr(commands, "SystemClock", Clock)
    ran = run(topogate, serve(documents, None, EVERYWHERE), "job", "large", "--watch", *(["-o", form] if form else []))
    assert ran.code == 130
    assert ran.err.splitlines()[0].startswith("topogate: Job large is not in namespace default")
    assert ran.err.splitlines()[1:] == ["topogate: interrupted"], "the same failure is reported once"
    mark = {None: "Workload default/", "json": '"kind": "Workload"', "yaml": "kind: Workload"}[form]
    assert ran.out.count(mark) == 3
    assert ran.out.count("77") == 1
    assert (form == "yaml") == ("\n---\n" in ran.out)


def test_watched_files_are_refused(topogate: Commands):
    ran = topogate.run("explain", "job", "a", "--watch", "--nodes", topogate.write("cluster.yaml", *build_nodes()))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
