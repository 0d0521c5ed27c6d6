"""The admission check controller kueue.x-k8s.io/provisioning-request: requests nodes from the cluster's autoscaler.

Level-triggered, an AdmissionCheck or a workload at a time. The statuses decide what is to be done, with requests that
have the number of the attempt in their names (`core.plan.workloads.provisioning`), so that a restarted process makes
none twice. ProvisioningRequests are a custom resource that may not be installed, or may come later; without it the
checks are not active.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import cast

from core.names import PROVISIONING_CONTROLLER, QUOTA_RESERVED
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.workloads.checks import count_attempts
from core.plan.workloads.provisioning import build_active_condition
from core.plan.workloads.provisioning_objects import request_name
from core.plan.workloads.provisioning_steps import ProvisionedWorkload, decide, plan_check, plan_request, plan_rest
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result, Retryable
from core.runtime.http.errors import Conflict, Forbidden, Invalid, NotFound
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import INITIAL_PRIORITY, Item
from core.state.check_facts import ProvisioningConfig
from core.state.facts import WorkloadFacts, is_condition_true
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor
from reconciler.observe.indexes import find_owned
from reconciler.observe.installed_kinds import is_serving
from reconciler.observe.observed import Observed

CHECK, WORKLOAD = "check", "workload"


class Provisioning:
    """Reconciles one AdmissionCheck by name, or one workload by namespace/name, at a time."""

    def __init__(self, observed: Observed, executor: Executor, clock: Clock) -> None:
        self._observed = observed
        self._executor = executor
        self.controller = build_controller("provisioning", self._reconcile, clock, workers=4)
        self._queue = self.controller.queue
        observed.workloads.add_handler(self._on_workload)
        observed.provisioning_requests.add_handler(self._on_request)
        observed.admission_checks.add_handler(lambda change: self._queue_all("check changed"))
        observed.provisioning_configs.add_handler(lambda change: self._queue_all("configuration changed"))
        observed.definitions.add_handler(self._on_definition)

    # --- what brings us here --------------------------------------------------------------------------

    def _on_workload(self, change: Change) -> None:
        if change.new is None:
            return
        holds = is_condition_true(change.new, QUOTA_RESERVED) and change.new["status"].get("admissionChecks")
        if holds or find_owned(self._observed.provisioning_requests.store, change.new):
            self._queue.add((WORKLOAD, build_object_key(change.obj)), "workload changed", INITIAL_PRIORITY if change.initial else 0)

    def _on_request(self, change: Change) -> None:
        metadata = change.obj["metadata"]
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("kind") == r.WORKLOADS.kind:
                key = f"{metadata['namespace']}/{owner['name']}"
                self._queue.add((WORKLOAD, key), "request changed", INITIAL_PRIORITY if change.initial else 0)

    def _on_definition(self, change: Change) -> None:
        if change.obj["metadata"]["name"] == str(r.PROVISIONING_REQUESTS):
            self._queue_all("definition changed")

    def _queue_all(self, reason: str) -> None:
        for name in self._observed.state.checks:
            self._queue.add((CHECK, name), reason)
        for key, facts in self._observed.state.workloads.facts.items():
            if facts.quota_reserved and facts.checks:
                self._queue.add((WORKLOAD, key), reason)

    async def _reconcile(self, item: Item) -> Result:
        kind, key = cast("tuple[str, str]", item.key)
        return await self._check(key) if kind == CHECK else await self._reconcile_workload(key)

    @property
    def _is_installed(self) -> bool:
        definition = self._observed.definitions.store.get(str(r.PROVISIONING_REQUESTS))
        return definition is not None and is_serving(definition, r.PROVISIONING_REQUESTS)

    # --- checks ---------------------------------------------------------------------------------------

    async def _check(self, name: str) -> Result:
        """Reports whether the check can be performed."""
        obj, facts = self._observed.admission_checks.store.get(name), self._observed.state.checks.get(name)
        if obj is None or facts is None or facts.controller != PROVISIONING_CONTROLLER:
            return Done()
        condition = build_active_condition(facts, self._observed.provisioning, installed=self._is_installed)
        return await self._executor.execute(plan_check(obj, condition, self._executor.format_now()))

    # --- workloads ------------------------------------------------------------------------------------

    async def _reconcile_workload(self, key: str) -> Result:
        workload, facts = self._observed.workloads.store.get(key), self._observed.state.workloads.facts.get(key)
        if workload is None or facts is None:
            return Done()
        asked = self._read(workload, facts)
        if asked.asks and self._is_installed and not self._observed.provisioning_requests.synced:
            return RequeueAfter(pacing.REQUESTS_LISTED_S)  # what has been asked for already is not known yet
        decided, namespace = decide(asked), workload["metadata"]["namespace"]
        refused, overtaken = dict[str, str](), list[Conflict | Retryable]()
        for check, wanted in decided.wanted.items():
            try:
                templates = await self._read_templates(namespace, (template["metadata"]["name"] for template in wanted.templates))
                if self._observed.workloads.store.get(key) is not workload:
                    return Done()  # it has changed meanwhile: its event leads here again
                await self._executor.execute(plan_request(workload, wanted, templates))
            except (Invalid, Forbidden) as error:
                refused[check] = f"ProvisioningRequest {wanted.request['metadata']['name']} is refused: {error}"
            except (Conflict, Retryable) as error:  # keeps nothing else from being done
                overtaken.append(error)
        templates = await self._read_templates(namespace, decided.templates)
        result = await self._executor.execute(plan_rest(asked, decided, templates, refused))
        for failed in overtaken:
            raise failed
        return result

    def _read(self, workload: Obj, facts: WorkloadFacts) -> ProvisionedWorkload:
        state, configs = self._observed.state, dict[str, ProvisioningConfig | None]()
        store, metadata = self._observed.provisioning_requests.store, workload["metadata"]
        requests = {request["metadata"]["name"]: request for request in find_owned(store, workload)}
        for entry in (workload.get("status") or {}).get("admissionChecks") or ():
            check = state.checks.get(entry["name"])
            if check is None or check.controller != PROVISIONING_CONTROLLER:
                continue
            configs[entry["name"]] = self._observed.provisioning.get(check.provisioning_config or "") if self._is_installed else None
            name = request_name(metadata["name"], entry["name"], count_attempts(entry))
            request = store.get(f"{metadata['namespace']}/{name}")
            if request is not None:
                requests[name] = request
        return ProvisionedWorkload(workload, facts, configs, requests, state.flavors, self._executor.format_now())

    async def _read_templates(self, namespace: str, names: Iterable[str]) -> dict[str, Obj]:
        """PodTemplates, which are not observed: those of these names that are there."""
        found = {}
        for name in names:
            with suppress(NotFound):
                found[name] = await self._executor.read(r.POD_TEMPLATES, namespace, name)
        return found
