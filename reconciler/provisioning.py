"""The admission check controller kueue.x-k8s.io/provisioning-request: asks the cluster's autoscaler for nodes.

Level-triggered, an AdmissionCheck or a workload at a time. What is to be done is told from the statuses and from what was asked
for under names that tell the attempt (`core.plan.provisioning`), so that whoever starts anew doubles nothing. ProvisioningRequests
are a custom resource that may not be installed, or may come later; without it the checks are not active.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, assert_never, cast

from core import trace_names as t
from core.names import (
    ACTIVE,
    ADMISSION_CHECK_UPDATED,
    EVENT_PROVISIONING_CREATED,
    PROVISIONING_CONTENT,
    PROVISIONING_CONTROLLER,
    QUOTA_RESERVED,
)
from core.plan import resources as r
from core.plan import writes as w
from core.plan.admission import sync_status
from core.plan.checks import attempt_of, changed_check
from core.plan.conditions import says, set_conditions
from core.plan.provisioning import Drop, Judge, Make, Wait, active_condition, plan_provisioning, superseded, withdrawn
from core.plan.provisioning_objects import Wanted, request_name
from core.plan.workload import MissingFlavor
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result, Retryable
from core.runtime.errors import AlreadyExists, Forbidden, Invalid, NotFound
from core.runtime.store import Change, object_key
from core.runtime.workqueue import INITIAL_PRIORITY, Item
from core.state.check_facts import CheckFacts
from core.state.facts import WorkloadFacts, condition_is_true
from reconciler import tracing
from reconciler.controllers import build_controller
from reconciler.execute import Executor
from reconciler.indexes import find_owned
from reconciler.installed import serves
from reconciler.observed import Observed

logger = logging.getLogger(__name__)
CHECK, WORKLOAD = "check", "workload"
LIST_S = 0.5  # how soon to look whether requests that have just been installed are listed
REFUSED_S = 30.0  # what the API server refuses it may take later: a right or a quota that was missing


class Provisioning:
    """Reconciles one AdmissionCheck by name, or one workload by namespace/name, at a time."""

    def __init__(self, observed: Observed, executor: Executor, clock: Clock) -> None:
        self._observed = observed
        self._executor = executor
        self.controller = build_controller("provisioning", self._reconcile, clock, workers=4)
        self._queue = self.controller.queue
        observed.workloads.add_handler(self._on_workload)
        observed.provisioning_requests.add_handler(self._on_request)
        observed.admission_checks.add_handler(lambda change: self._everything("check changed"))
        observed.provisioning_configs.add_handler(lambda change: self._everything("configuration changed"))
        observed.definitions.add_handler(self._on_definition)

    # --- what brings us here --------------------------------------------------------------------------

    def _on_workload(self, change: Change) -> None:
        if change.new is None:
            return
        holds = condition_is_true(change.new, QUOTA_RESERVED) and change.new["status"].get("admissionChecks")
        if holds or find_owned(self._observed.provisioning_requests.store, change.new):
            self._queue.add((WORKLOAD, object_key(change.obj)), "workload changed", INITIAL_PRIORITY if change.initial else 0)

    def _on_request(self, change: Change) -> None:
        metadata = change.obj["metadata"]
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("kind") == r.WORKLOADS.kind:
                key = f"{metadata['namespace']}/{owner['name']}"
                self._queue.add((WORKLOAD, key), "request changed", INITIAL_PRIORITY if change.initial else 0)

    def _on_definition(self, change: Change) -> None:
        if change.obj["metadata"]["name"] == str(r.PROVISIONING_REQUESTS):
            self._everything("definition changed")

    def _everything(self, reason: str) -> None:
        for name in self._observed.state.checks:
            self._queue.add((CHECK, name), reason)
        for key, facts in self._observed.state.workloads.facts.items():
            if facts.quota_reserved and facts.checks:
                self._queue.add((WORKLOAD, key), reason)

    async def _reconcile(self, item: Item) -> Result:
        kind, key = cast("tuple[str, str]", item.key)
        return await self._check(key) if kind == CHECK else await self._workload(key)

    @property
    def _is_installed(self) -> bool:
        definition = self._observed.definitions.store.get(str(r.PROVISIONING_REQUESTS))
        return definition is not None and serves(definition, r.PROVISIONING_REQUESTS)

    # --- checks ---------------------------------------------------------------------------------------

    async def _check(self, name: str) -> Result:
        """Says whether the check can be performed."""
        obj, facts = self._observed.admission_checks.store.get(name), self._observed.state.checks.get(name)
        if obj is None or facts is None or facts.controller != PROVISIONING_CONTROLLER:
            return Done()
        condition = active_condition(facts, self._observed.provisioning, installed=self._is_installed)
        before = (obj.get("status") or {}).get("conditions") or []
        if not says(before, condition):
            generation = int(obj["metadata"].get("generation") or 0)
            conditions = set_conditions(before, [condition], now=self._executor.now(), generation=generation)
            await self._executor.write(w.patch_status(r.ADMISSION_CHECKS, obj, {"conditions": conditions}))
            logger.info("check judged", extra={"check": name, ACTIVE: condition.status, "why": condition.message})
        return Done()

    # --- workloads ------------------------------------------------------------------------------------

    async def _workload(self, key: str) -> Result:
        workload, facts = self._observed.workloads.store.get(key), self._observed.state.workloads.facts.get(key)
        if workload is None or facts is None:
            return Done()
        for request in withdrawn(workload, self._requests(workload, {})):
            await self._delete(request)
        if facts.admission is None or not facts.quota_reserved:
            return Done()
        if facts.evicted or facts.finished or facts.deleting or not facts.active:
            return Done()
        entries = {entry["name"]: entry for entry in (workload.get("status") or {}).get("admissionChecks") or ()}
        mine = {name: found for name in entries if (found := self._provisioning_check(name)) is not None}
        if not mine:
            return Done()
        if self._is_installed and not self._observed.provisioning_requests.synced:
            return RequeueAfter(LIST_S)  # what has been asked for already is not known yet
        requests = self._requests(workload, {name: entries[name] for name in mine})
        judged: dict[str, dict[str, Any]] = {}
        refused = False
        for name, check in mine.items():
            try:
                action = self._plan(workload, facts, check, entries[name], requests)
            except MissingFlavor as error:
                raise Retryable(str(error)) from error
            match action:
                case Make(wanted):
                    why_not = await self._make(workload, wanted)
                    refused = refused or bool(why_not)
                    if why_not and why_not != entries[name].get("message"):
                        judged[name] = changed_check(entries[name], entries[name]["state"], why_not, self._executor.now())
                case Drop(request):
                    await self._delete(request)
                case Judge(entry):
                    judged[name] = entry
                case Wait():
                    pass
                case _:
                    assert_never(action)
        if judged:
            await self._judge(workload, entries, judged)
        for request in superseded(workload, {name: entries[name] for name in mine}, requests):
            await self._delete(request)
        return RequeueAfter(REFUSED_S) if refused else Done()

    def _plan(
        self, workload: Obj, facts: WorkloadFacts, check: CheckFacts, entry: Mapping[str, Any], requests: Mapping[str, Obj]
    ) -> Make | Drop | Judge | Wait:
        assert facts.admission is not None
        config = self._observed.provisioning.get(check.provisioning_config or "") if self._is_installed else None
        return plan_provisioning(
            workload,
            facts.admission,
            entry,
            config,
            requests,
            self._observed.state.flavors,
            admitted=facts.admitted,
            now=self._executor.now(),
        )

    def _provisioning_check(self, name: str) -> CheckFacts | None:
        check = self._observed.state.checks.get(name)
        return check if check is not None and check.controller == PROVISIONING_CONTROLLER else None

    def _requests(self, workload: Obj, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Obj]:
        """By name, those of a workload, and what has a name that is to be its."""
        store, metadata = self._observed.provisioning_requests.store, workload["metadata"]
        found = {request["metadata"]["name"]: request for request in find_owned(store, workload)}
        for name, entry in entries.items():
            wanted = request_name(metadata["name"], name, attempt_of(entry))
            request = store.get(f"{metadata['namespace']}/{wanted}")
            if request is not None:
                found[wanted] = request
        return found

    async def _make(self, workload: Obj, wanted: Wanted) -> str | None:
        """Templates, then the request that names them; says why the API server refuses it, if it does."""
        name = wanted.request["metadata"]["name"]
        try:
            for template in wanted.templates:
                if not await self._ensure_template(template):
                    raise Retryable(f"PodTemplate {template['metadata']['name']} of an earlier request goes first")
            attributes = {t.WORKLOAD: workload["metadata"]["name"], t.PROVISIONING_REQUEST: name}
            with tracing.step(t.PROVISION, workload, attributes):
                await self._executor.write(w.Create(r.PROVISIONING_REQUESTS, wanted.request))
        except AlreadyExists:
            return None  # its event, which is on its way, brings us back
        except (Invalid, Forbidden) as error:
            return f"ProvisioningRequest {name} is refused: {error}"
        logger.info("nodes asked for", extra={"workload": object_key(workload), "request": name})
        self._executor.reporter.event(r.WORKLOADS, workload, EVENT_PROVISIONING_CREATED, f"Created ProvisioningRequest: {name}")
        return None

    async def _ensure_template(self, template: Obj) -> bool:
        """Makes a PodTemplate, if it is not there. False where another was in its place, which is gone then."""
        metadata = template["metadata"]
        try:
            await self._executor.write(w.Create(r.POD_TEMPLATES, template))
        except AlreadyExists:
            found = await self._executor.read(r.POD_TEMPLATES, metadata["namespace"], metadata["name"])
            if _owner_and_content(found["metadata"]) == _owner_and_content(metadata):
                return True
            await self._executor.write(w.Delete(r.POD_TEMPLATES, found))
            return False
        return True

    async def _delete(self, request: Mapping[str, Any]) -> None:
        """Deletes the very request that was seen, after the PodTemplates that were made for it."""
        metadata = request["metadata"]
        for pod_set in request["spec"].get("podSets") or ():
            try:
                found = await self._executor.read(r.POD_TEMPLATES, metadata["namespace"], pod_set["podTemplateRef"]["name"])
                if _owner_and_content(found["metadata"]) == _owner_and_content(metadata):  # a user may write requests that name others
                    await self._executor.write(w.Delete(r.POD_TEMPLATES, found))
            except NotFound:
                continue
        with suppress(NotFound):
            await self._executor.write(w.Delete(r.PROVISIONING_REQUESTS, dict(request)))

    async def _judge(self, workload: Obj, entries: Mapping[str, Mapping[str, Any]], judged: Mapping[str, Mapping[str, Any]]) -> None:
        """All in one write, which fails if the workload has changed since: what was judged may not be so any more."""
        checks = [judged.get(name, entry) for name, entry in entries.items()]
        await self._executor.write(w.apply_admission(workload, sync_status(workload, checks, self._executor.now())))
        for name, entry in judged.items():
            before = entries[name]["state"]
            if entry["state"] == before:
                continue
            logger.info("check of a workload", extra={"workload": object_key(workload), "check": name, "state": entry["state"]})
            message = f"Admission check {name} updated state from {before} to {entry['state']} with message {entry['message']}"
            self._executor.reporter.event(r.WORKLOADS, workload, ADMISSION_CHECK_UPDATED, message)


def _owner_and_content(metadata: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """For whom something was made to ask for nodes, and what it says."""
    uid = next((owner["uid"] for owner in metadata.get("ownerReferences") or () if owner.get("controller")), None)
    return uid, (metadata.get("annotations") or {}).get(PROVISIONING_CONTENT)
