"""A scene whose queue has a provisioning check, for the real autoscaler or a stand-in."""

from __future__ import annotations

from typing import Any

from core.names import API_VERSION, AUTOSCALING_GROUP, CONSUMES_PROVISIONING
from e2e.audit import truth
from e2e.nodes import build_node
from e2e.standins.autoscaler import Answer, AutoscalerStandIn
from tests.reconciler.scenes import Scene

Json = dict[str, Any]
ROOT = f"/apis/{API_VERSION}"
REQUESTS = f"/apis/{AUTOSCALING_GROUP}/v1"
PROVISIONING = "kueue.x-k8s.io/provisioning-request"
AT_ONCE = {"backoffLimitCount": 3, "backoffBaseSeconds": 1, "backoffMaxSeconds": 2}


class Checked:
    """A scene's check and configuration, for requests of a class."""

    def __init__(self, scene: Scene, class_name: str, retry: Json, **spec: Any) -> None:
        self.scene, self.api, self.class_name = scene, scene.api, class_name
        self.check = self.config = f"{scene.prefix}nodes"
        self.create("ProvisioningRequestConfig", {"provisioningClassName": self.class_name, "retryStrategy": retry, **spec})
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": self.config}
        self.create("AdmissionCheck", {"controllerName": PROVISIONING, "parameters": parameters})
        strategy = {"admissionChecksStrategy": {"admissionChecks": [{"name": self.check}]}}
        self.api.patch(self.queue_path, {"spec": strategy})
        scene.eventually("the check to be active", lambda _: self.active()[0] == "True")
        scene.eventually("the queue to be active with it", lambda _: self.queue_is_active())

    @property
    def queue_path(self) -> str:
        return f"{ROOT}/clusterqueues/{self.scene.prefix}queue"

    @property
    def path(self) -> str:
        return f"{ROOT}/admissionchecks/{self.check}"

    def queue_is_active(self) -> bool:
        queue = self.api.get(self.queue_path)
        condition = truth.get_condition(queue, "Active")
        seen = condition.get("observedGeneration") == queue["metadata"]["generation"]
        return seen and condition.get("status") == "True"

    def create(self, kind: str, spec: Json) -> None:
        body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": self.check}, "spec": spec}
        self.api.create(f"{ROOT}/{kind.lower()}s", body)

    def close(self) -> None:
        self.scene.clear()
        self.api.patch(self.queue_path, {"spec": {"admissionChecksStrategy": None}})
        self.api.delete(self.path)
        self.api.delete(f"{ROOT}/provisioningrequestconfigs/{self.config}")

    # --- seeing -----------------------------------------------------------------------------------------

    def requests(self) -> list[Json]:
        """Those that are there."""
        return self.api.list(f"{REQUESTS}/namespaces/{self.scene.namespace}/provisioningrequests")

    def templates(self) -> list[Json]:
        return self.api.list(f"/api/v1/namespaces/{self.scene.namespace}/podtemplates")

    def active(self) -> tuple[str | None, str | None]:
        condition = truth.get_condition(self.api.get(self.path), "Active")
        return condition.get("status"), condition.get("reason")

    def state(self, now: truth.Snapshot, job: str = "train") -> Json:
        """How far the job's workload is with the check."""
        entries = ((now.workload_of(job) or {}).get("status") or {}).get("admissionChecks") or [{}]
        found: Json = entries[0]
        return found

    def consumed(self, now: truth.Snapshot, job: str = "train") -> set[str]:
        """The requests whose nodes pods say that they use."""
        return {(pod["metadata"].get("annotations") or {}).get(CONSUMES_PROVISIONING, "") for pod in now.pods_of(job)}


class Provisioned(Checked):
    """With a stand-in for the autoscaler. Jobs of three nodes in a rack wait for what comes: racks have two each."""

    def __init__(self, scene: Scene, autoscaler: AutoscalerStandIn, retry: Json, **spec: Any) -> None:
        self.autoscaler = autoscaler
        super().__init__(scene, f"{scene.prefix}class.example.com", retry, **spec)

    def answer(self, *answers: Answer) -> None:
        """What the autoscaler says to one request after another, the last of these to all that follow."""

        def say(request: Json) -> Answer:
            uids = [asked["metadata"]["uid"] for asked in self.asked()]
            return answers[min(uids.index(request["metadata"]["uid"]), len(answers) - 1)]

        self.autoscaler.answers[self.class_name] = say

    def node(self, rack: int, number: int = 3) -> Json:
        return build_node(self.scene.pool, 1, rack, number)

    def asked(self) -> list[Json]:
        """Every request that there ever was."""
        return self.autoscaler.asked_for(self.class_name)


def is_evicted(now: truth.Snapshot, reason: str, job: str = "train") -> bool:
    condition = truth.get_condition(now.workload_of(job), "Evicted")
    return condition.get("status") == "True" and condition.get("reason") == reason


def get_eviction_messages(now: truth.Snapshot, job: str = "train") -> str:
    """What events say of its evictions for a check: the condition is another's as soon as it is admitted again."""
    workload = now.workload_of(job)
    uid = workload["metadata"]["uid"] if workload is not None else None
    told = (event for event in now.events if uid is not None and event["involvedObject"].get("uid") == uid)
    return "; ".join(event["message"] for event in told if event["reason"] == "EvictedDueToAdmissionCheck")


def has_quota(now: truth.Snapshot, job: str = "train") -> bool:
    return truth.is_true(now.workload_of(job), "QuotaReserved")


def list_event_reasons(now: truth.Snapshot, job: str = "train") -> set[str]:
    workload = now.workload_of(job)
    uid = workload["metadata"]["uid"] if workload is not None else None  # none yet
    return {event["reason"] for event in now.events if uid is not None and event["involvedObject"].get("uid") == uid}
