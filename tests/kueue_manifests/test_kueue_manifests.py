"""What Kueue's documentation shows for the features that topogate has, in manifests of our own: the real API server accepts them with
strict validation, warns of what topogate does not act on, and the jobs run, or wait, as the page of each says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from e2e import manifests
from e2e.api import Api, ApiError, wait_for
from e2e.cluster import Cluster
from e2e.nodes import NodePool
from e2e.standins.appwrapper import AppWrapperStandIn
from e2e.standins.autoscaler import AutoscalerStandIn, Nodes
from e2e.standins.base import StandIn
from e2e.standins.jobset import JobSetStandIn
from e2e.standins.leaderworkerset import LeaderWorkerSetStandIn
from e2e.standins.mpijob import MPIJobStandIn
from e2e.standins.ray import RayClusterStandIn, RayJobStandIn, RayServiceStandIn
from e2e.standins.rights import NAMESPACE as STAND_INS
from e2e.standins.sparkapplication import SparkApplicationStandIn
from e2e.standins.training import JAXJobStandIn, PaddleJobStandIn, PyTorchJobStandIn, TFJobStandIn, XGBoostJobStandIn
from e2e.standins.trainjob import TrainJobStandIn
from e2e.topogate import Topogate
from tests.installed import Installed
from tests.kueue_manifests.expected import BLOCK, EXPECTED, FOLDER, NAMESPACE, POLICED, RACK, load

Json = dict[str, Any]
STANDINS: tuple[type[StandIn], ...] = (
    *(AppWrapperStandIn, JobSetStandIn, LeaderWorkerSetStandIn, MPIJobStandIn, RayClusterStandIn, RayJobStandIn, RayServiceStandIn),
    *(SparkApplicationStandIn, JAXJobStandIn, PaddleJobStandIn, PyTorchJobStandIn, TFJobStandIn, XGBoostJobStandIn, TrainJobStandIn),
)
OWN = "/apis/kueue.x-k8s.io/v1beta2"
IN_NAMESPACE = f"{OWN}/namespaces/{NAMESPACE}"
CLUSTER_SCOPED = (
    *("AdmissionCheck", "ClusterQueue", "Cohort", "ProvisioningRequestConfig", "ResourceFlavor", "Topology", "WorkloadPriorityClass"),
    *("ClusterRole", "ClusterRoleBinding", "ClusterTrainingRuntime", "MultiKueueCluster", "MultiKueueConfig"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
)
ACCEPTED = [name for name, expected in EXPECTED.items() if not expected.refused and not expected.unserved]
ALLOCATABLE = {"cpu": "32", "memory": "256Gi", "pods": "110"}
TAINTED_BY_GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
POOLS = (
    NodePool(
        *(2, 2, 2),
        prefix="km-",
        labels={"example.com/km-group": "tas"},
        taints=({"key": "example.com/km-tas", "effect": "NoSchedule"},),  # pods of flavors without a topology go to other nodes
        allocatable=ALLOCATABLE,
        block_label=BLOCK,
        rack_label=RACK,
    ),
    NodePool(1, 1, 6, prefix="km-plain-", allocatable=ALLOCATABLE),
    NodePool(
        *(1, 1, 1),
        prefix="km-spot-",
        labels={"example.com/capacity": "spot"},
        taints=({"key": "example.com/spot", "value": "true", "effect": "NoSchedule"},),
        allocatable=ALLOCATABLE,
    ),
    NodePool(
        *(1, 1, 2),
        prefix="km-gpu-",
        labels={"example.com/km-group": "gpu"},
        taints=(TAINTED_BY_GPU,),
        allocatable=ALLOCATABLE | {"nvidia.com/gpu": "8", "nvidia.com/gpucores": "100", "nvidia.com/gpumem": "2048"},
    ),
)


@dataclass
class Applied:
    """What the API server answered to the creation of each file, and what became of all of them together."""

    warnings: dict[str, list[str]] = field(default_factory=dict)
    refusals: dict[str, list[ApiError]] = field(default_factory=dict)
    pods: Counter[str] = field(default_factory=Counter)
    domains: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    queues: dict[str, str] = field(default_factory=dict)
    nodes: Mapping[str, Json] = field(default_factory=dict)
    autoscaler_asked: list[Json] = field(default_factory=list)

    def apply(self, api: Api, name: str) -> None:
        self.warnings[name], self.refusals[name] = [], []
        for obj in load(name):
            self.create(api, name, obj)

    def create(self, api: Api, name: str, obj: Json) -> None:
        try:
            _, warnings = api.request_with_warnings("POST", f"{get_path(obj)}?fieldValidation=Strict", obj)
            self.warnings[name] += warnings
        except ApiError as error:
            self.refusals[name].append(error)

    def observe(self, api: Api) -> None:
        """Reads pods that run, by the object whose name theirs begins with, workloads and queues."""
        self.pods, self.domains = Counter(), {}
        for pod in api.list(f"/api/v1/namespaces/{NAMESPACE}/pods"):
            if (pod.get("status") or {}).get("phase") != "Running":
                continue
            labels = self.nodes[pod["spec"]["nodeName"]]["metadata"]["labels"]
            for beginning in _list_beginnings(pod["metadata"]["name"]):
                self.pods[beginning] += 1
                for label in (BLOCK, RACK):
                    self.domains.setdefault((beginning, label), set()).add(labels.get(label, ""))
        self.waiting = {}
        for workload in api.list(f"{IN_NAMESPACE}/workloads"):
            condition = _get_condition(workload, "QuotaReserved")
            if condition.get("status") == "False":
                self.waiting |= {owner["name"]: condition["reason"] for owner in workload["metadata"].get("ownerReferences") or ()}
        self.queues = {
            queue["metadata"]["name"]: _get_condition(queue, "Active").get("reason", "") for queue in api.list(f"{OWN}/clusterqueues")
        }

    def list_missing(self) -> list[str]:
        """What is expected of the jobs and is not so."""
        found = list[str]()
        for name, expected in EXPECTED.items():
            found += [f"{name}: {self.pods[run]} of {n} pods of {run}" for run, n in expected.runs.items() if self.pods[run] != n]
            found += [
                f"{name}: {run} waits for {self.waiting.get(run)}" for run, why in expected.waits.items() if self.waiting.get(run) != why
            ]
            found += [f"{name}: queue {q} is {self.queues.get(q)}" for q, why in expected.queues.items() if self.queues.get(q) != why]
        return found


def _list_beginnings(name: str) -> list[str]:
    """A name, and what is left of it without its last parts: the names of what a pod may belong to."""
    parts = name.split("-")
    return ["-".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _get_condition(obj: Json, kind: str) -> Json:
    return next((c for c in (obj.get("status") or {}).get("conditions") or () if c["type"] == kind), {})


def get_path(obj: Json) -> str:
    """Where an object is created: in the namespace of the manifests, as with `kubectl apply -n`, if its kind has one."""
    if obj["kind"] in CLUSTER_SCOPED:
        return manifests.get_path(obj)
    return manifests.get_path({**obj, "metadata": {**obj["metadata"], "namespace": NAMESPACE}})


@pytest.fixture(scope="module")
def topogate(installed: Installed) -> Topogate:
    return installed.run()


@contextmanager
def let_wrap(api: Api, group: str, plural: str) -> Iterator[None]:
    """Grants AppWrapper's operator a kind that its own manifests do not name, as an administrator does."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": f"wrap-{plural}"}}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"wrap-{plural}"}
    subjects = [{"kind": "ServiceAccount", "name": "appwrapper", "namespace": STAND_INS}]
    objects = (
        {**role, "rules": [{"apiGroups": [group], "resources": [plural], "verbs": ["*"]}]},
        {**role, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": subjects},
    )
    try:
        for obj in objects:
            api.create(manifests.get_path(obj), obj)
        yield
    finally:
        for obj in objects:
            api.delete(f"{manifests.get_path(obj)}/wrap-{plural}")


@pytest.fixture(scope="module")
def applied(cluster: Cluster, topogate: Topogate) -> Iterator[Applied]:
    """All manifests are applied at once, queues first, and waited for once."""
    api, made = cluster.api, Applied()
    for pool in POOLS:
        cluster.add_nodes(pool)
    made.nodes = {node["metadata"]["name"]: node for node in api.list("/api/v1/nodes")}
    cluster.create_namespace(NAMESPACE)
    cluster.create_namespace(POLICED)
    autoscaler = AutoscalerStandIn(api)
    autoscaler.answers["km.example.com"] = lambda _: Nodes()
    standins = [autoscaler, *(standin(api) for standin in STANDINS)]
    with ThreadPoolExecutor(4) as threads, ExitStack() as acting:
        acting.callback(delete_all, cluster)
        acting.callback(lambda: list(threads.map(StandIn.uninstall, standins)))
        list(threads.map(StandIn.install, standins))
        acting.enter_context(let_wrap(api, "leaderworkerset.x-k8s.io", "leaderworkersets"))
        for has_jobs in (False, True):  # queues before jobs
            list(threads.map(partial(made.apply, api), [name for name in EXPECTED if EXPECTED[name].has_jobs == has_jobs]))
        made.create(api, "v1beta2/cronjob", job_by_hand(api))
        for standin in standins:
            acting.enter_context(standin)

        def is_as_expected() -> bool:
            made.observe(api)
            return not made.list_missing()

        with suppress(TimeoutError):  # which of them are not, the tests say
            wait_for("all manifests to run or wait", is_as_expected, poll_s=0.5)
        made.autoscaler_asked = autoscaler.asked_for("km.example.com")
        yield made


def has_warnings(drawn: Sequence[str], fragments: Sequence[str]) -> bool:
    """Whether there is one warning for each fragment, and no other."""
    left = list(drawn)
    for fragment in fragments:
        found = next((warning for warning in left if fragment in warning), None)
        if found is None:
            return False
        left.remove(found)
    return not left


def job_by_hand(api: Api) -> Json:
    """As `kubectl create job --from=cronjob/nightly` makes it."""
    cronjob = api.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/nightly")
    template = cronjob["spec"]["jobTemplate"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": template["metadata"] | {"name": "nightly-by-hand"},
        "spec": template["spec"],
    }


def delete_all(cluster: Cluster) -> None:
    """Deletes what is left when the kinds of the stand-ins are gone with their objects."""
    api = cluster.api
    for path in ("batch/v1/cronjobs", "batch/v1/jobs", "apps/v1/deployments", "apps/v1/statefulsets"):
        group_version, _, plural = path.rpartition("/")
        api.request("DELETE", f"/apis/{group_version}/namespaces/{NAMESPACE}/{plural}?propagationPolicy=Background")
    for path in (f"{IN_NAMESPACE}/localqueues", f"{IN_NAMESPACE}/workloads", f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0"):
        api.request("DELETE", path)
    wait_for("the pods to be gone", lambda: not api.list(f"/api/v1/namespaces/{NAMESPACE}/pods"))
    kinds = {kind for standin in STANDINS for kind in (definition["spec"]["names"]["kind"] for definition in standin.definitions())}
    for obj in (obj for name in EXPECTED if not EXPECTED[name].unserved for obj in load(name)):
        if obj["kind"] in CLUSTER_SCOPED and obj["kind"] not in kinds:
            api.delete(f"{get_path(obj)}/{obj['metadata']['name']}")
    for namespace in (NAMESPACE, POLICED):
        cluster.delete_namespace(namespace)


def test_manifests_each_are_in_the_table():
    assert sorted(EXPECTED) == sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.glob("v1beta*/*.yaml"))


def test_manifests_of_served_features_are_accepted(applied: Applied, cluster: Cluster):
    refused = {name: list(map(str, applied.refusals[name])) for name in ACCEPTED if applied.refusals[name]}
    assert refused == {}


def test_manifests_draw_exactly_the_warnings_of_the_table(applied: Applied, cluster: Cluster):
    assert {name: applied.warnings[name] for name in EXPECTED if not has_warnings(applied.warnings[name], EXPECTED[name].warnings)} == {}


def test_manifests_of_unserved_features_are_refused_with_the_field(applied: Applied, cluster: Cluster):
    refused = {name: expected.refused for name, expected in EXPECTED.items() if expected.refused}
    assert {name: list(map(str, applied.refusals[name])) for name in refused if refused[name] not in str(applied.refusals[name])} == {}


def test_manifests_of_kinds_without_definition_are_not_found(applied: Applied, cluster: Cluster):
    for name, expected in EXPECTED.items():
        if expected.unserved:
            assert [error.status for error in applied.refusals[name]] == [404] * len(expected.unserved), name


def test_manifests_run_or_wait_as_their_pages_say(applied: Applied, cluster: Cluster):
    assert applied.list_missing() == []


def test_manifests_of_topology_jobs_are_placed_in_their_domains(applied: Applied, cluster: Cluster):
    wanted = {(run, level): count for expected in EXPECTED.values() for run, (level, count) in expected.domains.items()}
    assert {key: len(applied.domains.get(key, ())) for key in wanted} == wanted


def test_slices_of_the_jobsets_are_in_one_rack_each(applied: Applied, cluster: Cluster):
    """A slice has as many pods as each Job of the JobSets, in the order of the Jobs."""
    for run in ("jobset-sliced", "jobset-combined"):
        for index in range(2):
            assert len(applied.domains[f"{run}-worker-{index}", RACK]) == 1, (run, index)


def test_provisioning_job_hands_its_annotation_on_as_a_parameter(applied: Applied, cluster: Cluster):
    (request,) = applied.autoscaler_asked
    assert request["spec"]["parameters"] == {"maxRunDurationSeconds": "600"}


def test_partial_admission_reduces_the_pods_of_the_job(applied: Applied, cluster: Cluster):
    assert cluster.api.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/partial")["spec"]["parallelism"] == 4


def test_priority_class_of_a_job_is_that_of_its_workload(applied: Applied, cluster: Cluster):
    workloads = cluster.api.list(f"{IN_NAMESPACE}/workloads")
    (urgent,) = [w for w in workloads if w["metadata"]["name"].startswith("job-urgent-")]
    assert (urgent["spec"]["priority"], urgent["spec"]["priorityClassRef"]["name"]) == (1000, "km-urgent")


def test_policies_of_the_pages_refuse_jobs_without_queue_or_requests(applied: Applied, cluster: Cluster):
    good = manifests.build_job("good", POLICED, pods=1, gpus=0)
    unqueued = manifests.build_job("unqueued", POLICED, pods=1, gpus=0, queue=None)
    bare = manifests.build_job("bare", POLICED, pods=1, gpus=0)
    del bare["spec"]["template"]["spec"]["containers"][0]["resources"]
    path = f"{manifests.get_path(good)}?dryRun=All"
    cluster.api.create(path, good)
    for wrong, policy in ((unqueued, "km-queue-name"), (bare, "km-requests")):
        with pytest.raises(ApiError, match=policy):
            cluster.api.create(path, wrong)
