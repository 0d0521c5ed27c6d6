"""`topogate queue`: what waits, what holds quota, for those that may read all and for those with rights in one namespace."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any

import pytest
import typer
from rich.console import Console

from cli import cluster_view, queue_output
from cli.failures import Failure
from cli.given import run
from cli.reading.permitted_lists import get_permitted_queues
from cli.reading.permitted_reading import ClusterReading
from cli.reading.watching import WATCH_S, watch
from cli.reporting.queue_drawing import format_age, render_queues
from cli.reporting.table import format_table, remove_controls
from core.plan.steps import api_resources as r
from core.resource import Resource
from core.runtime.http.client import Client
from core.runtime.http.errors import Forbidden, NotFound, ServerError
from reconciler.execute.tracing import parse_time
from tests.cli.commands import RACK, ROOT, Commands, Obj, build_job, build_nodes, build_queues, run_process
from tests.cli.lives import NOW, build_queued_job, decide_documents
from tests.cli.test_api_answers import EMPTY, Answer, build_status, serve_answers, write_kubeconfig
from tests.runtime.fakes import ManualClock

GPU = "nvidia.com/gpu"


def build_cluster(**changes: Any) -> list[Obj]:
    """Six jobs in `default`: three hold 24 of 128 GPUs each, three wait for a rack of five nodes, which there is none."""
    jobs = [d for i in range(6) for d in build_queued_job(build_job(f"j{i}", 5 if i % 2 else 3, required=RACK), priority=i * 100)]
    return decide_documents([*build_nodes(), *build_queues(gpus=128, **changes), *jobs])


def move(documents: list[Obj], job: str, namespace: str) -> None:
    """The workload of a job, in another namespace."""
    for document in documents:
        owners = document["metadata"].get("ownerReferences") or [{}]
        if document["kind"] == "Workload" and owners[0].get("name") == job:
            document["metadata"]["namespace"] = namespace
    queue = next(d for d in documents if d["kind"] == "LocalQueue")
    if not any(d["kind"] == "LocalQueue" and d["metadata"]["namespace"] == namespace for d in documents):
        documents.append({**queue, "metadata": {**queue["metadata"], "namespace": namespace}})


def test_waiting_workloads_are_listed_in_order_with_positions_amounts_and_reasons(topogate: Commands):
    file = topogate.write("cluster.yaml", *build_cluster())
    (queue,) = topogate.run("queue", "--nodes", file, "-o", "json").data["queues"]
    rows = queue["waiting"]["workloads"]
    assert [(row["job"]["name"], row["position"], row["localPosition"], row["priority"]) for row in rows] == [
        ("j5", 1, 1, 500),
        ("j3", 2, 2, 300),
        ("j1", 3, 3, 100),
    ]
    assert rows[0]["asks"] == {GPU: "40", "cpu": "5"}
    assert {row["reason"] for row in rows} == {"TopologyPlacementFailed"}
    assert [(row["job"]["name"], row["state"], row["holds"][0]) for row in queue["holding"]["workloads"]] == [
        (name, "admitted", {"flavor": "gpu", "resource": GPU, "amount": "24"}) for name in ("j0", "j2", "j4")
    ]
    gpus = next(use for use in queue["quota"] if use["resource"] == GPU)
    assert (gpus["nominal"], gpus["used"], gpus["own"], gpus["borrowed"], gpus["available"]) == ("128", "72", "72", "0", "56")
    assert gpus["heldBy"] == [{"localQueue": "default/main", "amount": "72"}]


@pytest.mark.parametrize(
    ("preemption", "priority", "says"),
    [
        ({}, 100, ["withinClusterQueue is Never"]),
        ({}, 0, None),
        ({"withinClusterQueue": "LowerPriority"}, 100, None),
    ],
)
def test_higher_priority_that_waits_for_quota_has_the_setting_that_forbids_preemption(
    topogate: Commands, preemption: Obj, priority: int, says: list[str] | None
):
    documents = [*build_nodes(), *build_queues(gpus=64, preemption=preemption), *build_queued_job(build_job("low", 8))]
    documents = decide_documents([*decide_documents(documents), *build_queued_job(build_job("high", 2), priority)])
    file = topogate.write("cluster.yaml", *documents)
    ((row,),) = [queue["waiting"]["workloads"] for queue in topogate.run("queue", "--nodes", file, "-o", "json").data["queues"]]
    assert row.get("notPreempted") == says
    shown = topogate.run("queue", "--nodes", file, "-o", "wide").out
    assert ("WaitingForQuota, may not preempt: flavor" in shown) == (says is not None)
    assert ("64 of 64 in use; withinClusterQueue is Never\n" in shown) == (says is not None)


def test_borrowers_that_may_not_be_reclaimed_are_in_the_reason_of_missing_quota_alone(topogate: Commands):
    documents = [*build_documented_cluster(), *build_queued_job(build_job("urgent", 1, required="no/level"), 1000)]
    documents = decide_documents(documents)
    file = topogate.write("cluster.yaml", *documents)
    queue = topogate.run("queue", "research", "--nodes", file, "-o", "json").data["queues"][0]
    said = {row["job"]["name"]: (row["reason"], row.get("notPreempted")) for row in queue["waiting"]["workloads"]}
    both = ["withinClusterQueue is Never", "reclaimWithinCohort is Never"]
    assert said["finetune"] == ("WaitingForQuota", both)
    assert said["ablation"] == ("WaitingForQuota", None)
    assert said["urgent"][1] is None


def build_documented_cluster() -> list[Obj]:
    """The queues of docs/command.md: `research` lends 16 of its 64 GPUs to `vision`, and two jobs wait for them."""
    documents = build_queues(gpus=64, cohortName="teams")
    vision = deepcopy(next(d for d in documents if d["kind"] == "ClusterQueue"))
    vision["metadata"]["name"] = "vision"
    vision["spec"]["resourceGroups"][0]["flavors"][0]["resources"][2]["nominalQuota"] = "32"
    way = deepcopy(next(d for d in documents if d["kind"] == "LocalQueue"))
    way["metadata"]["name"], way["spec"]["clusterQueue"] = "vision", "vision"
    documents = [*build_nodes(), *documents, vision, way]
    jobs = (("detect", 6, "vision", 0), ("pretrain", 6, "main", 50), ("finetune", 4, "main", 100), ("ablation", 2, "main", 0))
    for name, pods, queue, priority in jobs:
        documents = decide_documents([*documents, *build_queued_job(build_job(name, pods, queue=queue, preferred=RACK), priority)])
    return documents


def test_documented_queue_is_shown_so(topogate: Commands, monkeypatch: pytest.MonkeyPatch):
    class Clock(ManualClock):
        def now(self) -> datetime:
            moment = parse_time(NOW)
            assert moment is not None
            return moment + timedelta(minutes=12)

    monkeypatch.setattr(cluster_view, "SystemClock", Clock)
    monkeypatch.setenv("COLUMNS", "132")
    ran = topogate.run("queue", "research", "--nodes", topogate.write("cluster.yaml", *build_documented_cluster()))
    assert (ran.code, ran.err) == (0, "")
    assert f"```console\n$ topogate queue research\n{ran.out}```\n" in (ROOT / "docs" / "command.md").read_text(), ran.out


@pytest.mark.parametrize("name", ["research", "cq/research", "clusterqueue.kueue.x-k8s.io/research", "main", "localqueue/main", "LQ/main"])
def test_queue_is_found_by_each_of_its_names(topogate: Commands, name: str):
    ran = topogate.run("queue", name, "--nodes", topogate.write("cluster.yaml", *build_cluster()))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("ClusterQueue research (BestEffortFIFO)\n  waiting: 3 workloads\n")


@pytest.mark.parametrize(("arguments", "code"), [(["job/main"], 2), (["reserch"], 1), (["lq/main", "-n", "x"], 1), (["--watch"], 2)])
def test_wrong_queue_is_reported_in_one_line(topogate: Commands, arguments: list[str], code: int):
    ran = topogate.run("queue", *arguments, "--nodes", topogate.write("cluster.yaml", *build_cluster()))
    assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1)


def test_name_of_a_cluster_queue_and_of_a_local_queue_is_refused(topogate: Commands):
    documents = build_cluster()
    next(d for d in documents if d["kind"] == "LocalQueue")["metadata"]["name"] = "research"
    ran = topogate.run("queue", "research", "--nodes", topogate.write("cluster.yaml", *documents))
    assert (ran.code, ran.err.count("clusterqueue/research or localqueue/research")) == (2, 1)


def test_unknown_name_lists_a_name_of_two_queues_once(topogate: Commands):
    documents = build_cluster()
    next(d for d in documents if d["kind"] == "LocalQueue")["metadata"]["name"] = "research"
    ran = topogate.run("queue", "nowhere", "--nodes", topogate.write("cluster.yaml", *documents))
    assert (ran.code, ran.err.count("research")) == (1, 1)


def test_namespace_without_queues_is_reported(topogate: Commands):
    ran = topogate.run("queue", "-n", "empty", "--nodes", topogate.write("cluster.yaml", *build_cluster()))
    assert (ran.code, ran.out.count("\n")) == (0, 1)


def test_workloads_of_other_namespaces_are_counted_and_not_named(topogate: Commands):
    documents = build_cluster()
    move(documents, "j5", "other")
    move(documents, "j0", "other")
    file = topogate.write("cluster.yaml", *documents)
    ran = topogate.run("queue", "-n", "default", "--nodes", file, "-o", "json")
    (queue,) = ran.data["queues"]
    assert [(row["job"]["name"], row["position"], row["localPosition"]) for row in queue["waiting"]["workloads"]] == [
        ("j3", 2, 1),
        ("j1", 3, 2),
    ]
    assert queue["waiting"]["others"] == {"count": 1, "asks": {GPU: "40", "cpu": "5"}}
    assert (queue["holding"]["others"]["count"], queue["holding"]["others"]["holds"][0]["amount"]) == (1, "24")
    gpus = next(use for use in queue["quota"] if use["resource"] == GPU)
    assert (gpus["heldBy"], gpus["othersHold"]) == ([{"localQueue": "default/main", "amount": "48"}], "24")
    for form in ([], ["-o", "wide"], ["-o", "yaml"]):
        shown = topogate.run("queue", "-n", "default", "--nodes", file, *form).out
        assert all(name not in shown for name in ("j5", "j0", "other/main"))
    assert "the others ask for 40 nvidia.com/gpu, 5 cpu" in topogate.run("queue", "-n", "default", "--nodes", file).out


@pytest.mark.parametrize("width", [8, 20, 40, 61, 80, 100, 160])
def test_no_line_is_longer_than_the_terminal_and_each_job_is_shown(topogate: Commands, monkeypatch: pytest.MonkeyPatch, width: int):
    monkeypatch.setenv("COLUMNS", str(width))
    shown = topogate.run("queue", "--nodes", topogate.write("cluster.yaml", *build_cluster(cohortName="teams"))).out
    assert max(map(len, shown.splitlines())) <= max(width, 20)
    assert all(f"job/j{i}" in shown for i in range(6))


def test_wide_form_cuts_nothing(topogate: Commands, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = topogate.run("queue", "-o", "wide", "--nodes", topogate.write("cluster.yaml", *build_cluster())).out
    assert shown.count("best cloud.provider.com/topology-block") == 3
    assert "…" not in shown


def test_reason_on_a_narrow_terminal_is_whole(topogate: Commands, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = topogate.run("queue", "--nodes", topogate.write("cluster.yaml", *build_cluster())).out
    assert " ".join(shown.split()).count("best cloud.provider.com/topology-block") == 3
    assert "…" not in shown


@pytest.mark.parametrize(
    ("since", "age"),
    [("2026-02-03T04:05:06Z", "0s"), ("2026-02-03T04:04:21Z", "45s"), ("2026-02-01T04:05:06Z", "2d"), ("", "?"), ("x", "?")],
)
def test_age_is_in_its_largest_whole_unit(since: str, age: str):
    now = parse_time(NOW)
    assert now is not None
    assert format_age(since, now) == age


def test_control_characters_of_a_message_do_not_reach_the_terminal():
    assert remove_controls("a\x1b[31m b\n c") == "a?[31m b c"
    assert format_table(["A", "B"], [["x", "\x1b]0;t\x07"]], 40)[1] == "x  ?]0;t?"


def test_ten_thousand_rows_are_drawn_in_seconds():
    row = {"position": 1, "localPosition": 1, "cohortPosition": 1, "namespace": "n", "name": "w", "localQueue": "q", "priority": 1}
    row |= {"queuedSince": NOW, "pods": 1, "asks": {GPU: "8"}, "reason": "WaitingForQuota", "message": "needs 8 more " * 8}
    holding: Obj = {"workloads": [], "others": {"count": 0, "holds": []}}
    reports = [
        {"clusterQueue": f"q{q}", "waiting": {"workloads": [row] * 334, "others": {"count": 0, "asks": {}}}, "holding": holding}
        for q in range(30)
    ]
    now = parse_time(NOW)
    assert now is not None
    drawn = io.StringIO()
    began = time.process_time()
    render_queues(Console(file=drawn, width=120), reports, now)
    assert drawn.getvalue().count("WaitingForQuota") == 10_020
    assert time.process_time() - began < 10  # 0.3 s on an idle machine; a row that costs as much as all others would take minutes


# --- rights in one namespace ------------------------------------------------------------------------------


def serve_namespace(documents: list[Obj], namespace: str, readable: tuple[Resource, ...] = ()) -> Callable[[str], Answer]:
    """Answers of an API server to a user that may read Workloads and LocalQueues of a namespace, and `readable` cluster-wide."""

    def answer(path: str) -> Answer:
        path = path.partition("?")[0]
        for resource in (r.WORKLOADS, r.LOCAL_QUEUES, r.CLUSTER_QUEUES, *readable):
            found = [d for d in documents if d["kind"] == resource.kind]
            mine = [d for d in found if d["metadata"].get("namespace") == namespace]
            if path == resource.build_path(namespace) and resource.namespaced:
                return 200, {"items": mine, "metadata": {"resourceVersion": "1"}}
            if resource in readable and path == resource.build_path():
                return 200, {"items": found, "metadata": {"resourceVersion": "1"}}
            if resource is r.CLUSTER_QUEUES and resource in readable and path.startswith(f"{resource.build_path()}/"):
                return 200, next(d for d in found if d["metadata"]["name"] == path.rpartition("/")[2])
        return build_status(403, "Forbidden", f'cannot list "{path}"')

    return answer


def run_limited(topogate: Commands, answer: Callable[[str], Answer], *arguments: str) -> Any:
    with serve_answers(answer) as url:
        return topogate.run("queue", "-n", "default", *arguments, "--kubeconfig", write_kubeconfig(topogate, url))


def test_user_of_one_namespace_sees_own_jobs_and_which_things_are_not_known(topogate: Commands):
    documents = build_cluster()
    move(documents, "j5", "other")
    answer = serve_namespace(documents, "default")
    told = run_limited(topogate, answer, "-o", "json").data
    (queue,) = told["queues"]
    rows = queue["waiting"]["workloads"]
    assert [(row["job"]["name"], row["position"], row["localPosition"], row["cohortPosition"]) for row in rows] == [
        ("j3", None, 1, None),
        ("j1", None, 2, None),
    ]
    assert rows[0]["asks"] == {GPU: "40", "cpu": "5"}
    assert queue["waiting"]["others"] == {"count": None, "asks": None}
    assert queue["holding"]["others"] == {"count": None, "holds": None}
    assert "quota" not in queue
    assert "inactive" not in queue
    assert queue["notRead"] == ["ClusterQueue research may not be read: its quota, and what others wait for and hold, is not known"]
    assert told["notRead"] == [
        "Workloads of other namespaces than default may not be read: positions count in the LocalQueue alone",
        "limitranges and runtimeclasses.node.k8s.io may not be listed: requests that they add to pods are not counted",
    ]
    shown = run_limited(topogate, answer).out
    assert "waiting: 2 workloads of yours; others are not known" in shown
    assert "in localqueue" in shown.lower()  # a heading, or a line where the terminal is narrow
    assert all(note in shown for note in (*told["notRead"], *queue["notRead"]))


def test_user_of_one_namespace_with_the_cluster_queue_sees_others_as_counts_and_sizes(topogate: Commands):
    documents = build_cluster()
    move(documents, "j5", "other")
    move(documents, "j0", "other")
    queue = next(d for d in documents if d["kind"] == "ClusterQueue")
    total = [{"name": GPU, "total": "72", "borrowed": "8"}]
    queue["status"] = {"pendingWorkloads": 3, "reservingWorkloads": 3, "flavorsReservation": [{"name": "gpu", "resources": total}]}
    (shown,) = run_limited(topogate, serve_namespace(documents, "default", (r.CLUSTER_QUEUES,)), "-o", "json").data["queues"]
    assert shown["waiting"]["others"] == {"count": 1, "asks": None}
    assert shown["holding"]["others"] == {"count": 1, "holds": [{"flavor": "gpu", "resource": GPU, "amount": "24"}]}
    gpus = next(use for use in shown["quota"] if use["resource"] == GPU)
    assert (gpus["used"], gpus["own"], gpus["borrowed"], gpus["othersHold"]) == ("72", "64", "8", "24")
    assert "available" not in gpus
    assert "j5" not in json.dumps(shown)


def test_user_without_any_right_gets_one_line(topogate: Commands):
    ran = run_limited(topogate, lambda path: build_status(403, "Forbidden", "no"))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("topogate: you may not list localqueues.kueue.x-k8s.io in namespace default; the ClusterRole topogate-viewer")


def test_nodes_and_pods_are_not_read(topogate: Commands):
    asked: list[str] = []

    def answer(path: str) -> Answer:
        asked.append(path.partition("?")[0])
        return EMPTY

    with serve_answers(answer) as url:
        ran = topogate.run("queue", "--kubeconfig", write_kubeconfig(topogate, url))
    assert (ran.code, ran.out.count("\n")) == (0, 1)
    assert not [path for path in asked if path.endswith(("/nodes", "/pods", "/jobs"))]


# --- watching ---------------------------------------------------------------------------------------------


class _End(Exception):
    pass


def test_watch_reads_again_after_a_failure_and_waits_longer_than_a_read_takes():
    clock, reads, slept = ManualClock(), list[int](), list[float]()

    class Clock(ManualClock):
        async def sleep(self, seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 3:
                raise _End

    clock = Clock()
    shown: list[object] = []

    async def read() -> ClusterReading:
        reads.append(1)
        if len(reads) == 2:
            raise Failure("the API server cannot be reached")
        return object()  # type: ignore[return-value]

    with pytest.raises(_End):
        run(watch(read, shown.append, clock))
    assert (len(reads), len(shown), slept) == (3, 2, [WATCH_S] * 3)


def test_watch_ends_with_the_failure_of_its_first_read():
    async def read() -> ClusterReading:
        raise Failure("no permission")

    with pytest.raises(Failure, match="no permission"):
        run(watch(read, lambda reading: None, ManualClock()))


@pytest.mark.parametrize("form", ["json", "yaml", "wide"])
def test_watched_queue_is_printed_again_only_when_it_has_changed(topogate: Commands, monkeypatch: pytest.MonkeyPatch, form: str):
    documents, slept = build_cluster(), list[float]()

    class Clock(ManualClock):
        async def sleep(self, seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 2:  # two reads are equal, the third is not
                move(documents, "j5", "other")
            if len(slept) == 3:
                raise typer.Abort

    monkeypatch.setattr(queue_output, "SystemClock", Clock)
    ran = run_limited(topogate, serve_namespace(documents, "default"), "--watch", "-o", form)
    assert (ran.code, ran.err) == (130, "topogate: interrupted\n")
    mark = {"json": '"clusterQueue": "research"', "yaml": "clusterQueue: research", "wide": "ClusterQueue research\n"}[form]
    first, second = ran.out.split(mark)[1:]
    assert ("j5" in first, "j5" in second) == (True, False)
    assert (form == "yaml") == ("\n---\n" in ran.out)


class Reads(Client):
    """A server with ClusterQueues of some names; `most` is how many reads were under way at once."""

    def __init__(self, answers: dict[str, Exception]) -> None:
        self._answers = answers
        self._running = self.most = 0

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Obj:
        self._running += 1
        self.most = max(self.most, self._running)
        await asyncio.sleep(0)
        self._running -= 1
        if name in self._answers:
            raise self._answers[name]
        return {"metadata": {"name": name}}


async def test_named_queues_are_read_eight_at_a_time():
    client = Reads({"q-03": NotFound(404, "NotFound", "gone"), "q-05": Forbidden(403, "Forbidden", "no")})
    found = await get_permitted_queues(client, {f"q-{i:02}" for i in range(20)})
    assert [queue["metadata"]["name"] for queue in found] == [f"q-{i:02}" for i in range(20) if i not in (3, 5)]
    assert client.most == 8


async def test_named_queue_that_cannot_be_read_for_another_reason_ends_the_command():
    client = Reads({"q-03": ServerError(500, "InternalError", "etcd is away")})
    with pytest.raises(Failure, match=r"cannot get clusterqueues.kueue.x-k8s.io: etcd is away"):
        await get_permitted_queues(client, {f"q-{i:02}" for i in range(20)})


def test_process_that_ends_without_freeing_has_printed_all(topogate: Commands):
    file = topogate.write("cluster.yaml", *build_cluster())
    done = run_process("cli", "queue", "--nodes", str(file), "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == topogate.run("queue", "--nodes", file, "-o", "json").data


def test_queue_command_imports_no_models_of_files():
    """They cost a command that needs none of them a third of a second."""
    heavy = ("pydantic", "cli.planning", "core.api.kinds", "core.queueing.cycle.cycle", "kubernetes_asyncio.client.api_client")
    code = f"""
import sys, cli.program, cli.queue_output
cli.program.main(["queue", "--kubeconfig", "/none", "-o", "wide"])  # which parses its arguments and ends
print([name for name in {heavy!r} if name in sys.modules])"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_deactivated_workload_is_shown_apart_with_its_reason(topogate: Commands):
    """Found by a new user, who looked for a suspended job and found nothing."""
    documents = build_cluster()
    workload = next(d for d in documents if d["kind"] == "Workload" and d["metadata"]["ownerReferences"][0]["name"] == "j5")
    workload["spec"]["active"] = False
    workload["status"] = {
        "conditions": [
            {
                "type": "Evicted",
                "status": "True",
                "reason": "Deactivated",
                "message": "by its user",
                "lastTransitionTime": "2026-02-03T04:05:06Z",
            }
        ]
    }
    file = topogate.write("cluster.yaml", *documents)
    (queue,) = topogate.run("queue", "--nodes", file, "-o", "json").data["queues"]
    (row,) = queue["notConsidered"]["workloads"]
    assert (row["job"]["name"], row["state"], row["reason"], row["message"]) == ("j5", "deactivated", "Deactivated", "by its user")
    assert [row["job"]["name"] for row in queue["waiting"]["workloads"]] == ["j3", "j1"]
    assert "  not considered: 1 workload\n" in topogate.run("queue", "--nodes", file).out


def test_reason_on_a_narrow_terminal_begins_with_the_change_that_would_help(topogate: Commands, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "120")
    shown = topogate.run("queue", "--nodes", topogate.write("cluster.yaml", *build_cluster())).out
    assert shown.count("TopologyPlacementFailed: It would fit in one") == 3
