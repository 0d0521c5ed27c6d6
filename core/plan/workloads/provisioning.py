"""The admission check that asks an autoscaler for nodes: what is to be done next for one check of a workload that has quota.

    the check is      its ProvisioningRequest                    what is done
    Pending           none of this attempt                       made
                      Failed, or its capacity is gone            Retry, or Rejected where all attempts are spent
                      Provisioned                                Ready, with what pods get for it
                      neither yet                                its message is the check's
                      asks for what is not wanted any more       deleted, and created again
    Ready             none of this attempt, not admitted         Pending
                      Failed or BookingExpired, not admitted     Retry or Rejected
                      CapacityRevoked                            the same, also while it runs
    Retry, Rejected   any                                        nothing: quota is given back by `core.plan.workloads.checks`

The attempt is `retryCount` + 1, so that the status alone identifies it. A request that ended in an earlier reservation of
quota does not count for this one: it is deleted and created again, without a count.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.model.admission import Admission
from core.names import ACTIVE, CHECK_PENDING, CHECK_READY, FINISHED, PROVISIONING_CONTENT, PROVISIONING_RESERVATION, QUOTA_RESERVED
from core.plan.steps.conditions import Condition
from core.plan.workloads.checks import build_changed_check, count_attempts, fail_check
from core.plan.workloads.provisioning_objects import (
    DesiredRequest,
    build_pod_set_updates,
    build_wanted,
    find_reservation_time,
    list_needed_pod_sets,
    request_name,
)
from core.state.check_facts import CheckFacts, ProvisioningConfig
from core.state.facts import FlavorFacts, find_condition, is_condition_true

Json = Mapping[str, Any]
FAILED, REVOKED, EXPIRED, PROVISIONED, ACCEPTED = "Failed", "CapacityRevoked", "BookingExpired", "Provisioned", "Accepted"
_ENDS = {FAILED: "failure", REVOKED: "capacity revoked", EXPIRED: "booking expired"}
MOST_FORMER = 100  # attempts before the present one with requests that are looked for: any count may be written into a status
NOT_NEEDED = "the ProvisioningRequest is not needed"
NOT_INSTALLED = "the cluster has no provisioningrequests.autoscaling.x-k8s.io in version v1"


@dataclass(frozen=True, slots=True)
class Make:
    """These objects, templates first."""

    wanted: DesiredRequest


@dataclass(frozen=True, slots=True)
class Drop:
    """This request, with its templates."""

    request: Json


@dataclass(frozen=True, slots=True)
class SetState:
    """The state of the check is to be this."""

    entry: dict[str, Any]


@dataclass(frozen=True, slots=True)
class WaitForProvider:
    """Waits for the provider, or another component, to act."""


Action = Make | Drop | SetState | WaitForProvider


def plan_provisioning(
    workload: Json,
    admission: Admission,
    entry: Json,
    config: ProvisioningConfig | None,
    requests: Mapping[str, Json],
    flavors: Mapping[str, FlavorFacts],
    *,
    admitted: bool,
    now: str,
) -> Action:
    """Returns the next action for one check, `entry`, of a workload that has quota and is not evicted. `Make` has the request that is
    missing, `Drop` one that asks for something else or is of an earlier reservation. `SetState` follows what the provider reports;
    `WaitForProvider`: nothing. `requests` are those of its namespace by name; None for `config` means that the check cannot be performed.
    Raises MissingFlavor where a flavor of the admission does not exist."""
    state = entry.get("state")
    if state not in (CHECK_PENDING, CHECK_READY):
        return WaitForProvider()
    if config is None:
        return _report_state(entry, f"AdmissionCheck {entry['name']} is not active", now) if state == CHECK_PENDING else WaitForProvider()
    name = request_name(workload["metadata"]["name"], entry["name"], count_attempts(entry))
    found = requests.get(name)
    if found is not None and not is_owned(found, workload):
        return (
            _report_state(entry, f"ProvisioningRequest {name} is not of this workload", now)
            if state == CHECK_PENDING
            else WaitForProvider()
        )
    ended = find_ending(found) if found is not None else None
    if state == CHECK_READY:
        if found is None and not admitted and list_needed_pod_sets(workload, config):
            return SetState(build_changed_check(entry, CHECK_PENDING, f"ProvisioningRequest {name} is gone", now))
        over = ended is not None and (not admitted or ended[0] == REVOKED)
        return _fail(entry, config, ended, now) if over and ended is not None else WaitForProvider()
    if admitted:
        return WaitForProvider()
    if not list_needed_pod_sets(workload, config):
        return SetState(build_changed_check(entry, CHECK_READY, NOT_NEEDED, now))
    if found is None:
        return Make(build_wanted(workload, admission, config, name, flavors))
    if found["metadata"].get("deletionTimestamp"):
        return WaitForProvider()
    wanted = build_wanted(workload, admission, config, name, flavors).request
    if _note(found, PROVISIONING_CONTENT) != _note(wanted, PROVISIONING_CONTENT):
        return Drop(found)
    if ended is not None:
        if _note(found, PROVISIONING_RESERVATION) != find_reservation_time(workload):
            return Drop(found)
        return _fail(entry, config, ended, now)
    if is_condition_true(found, PROVISIONED):
        message = _format_message(found, PROVISIONED) or f"ProvisioningRequest {name} is provisioned"
        return SetState(
            {**build_changed_check(entry, CHECK_READY, message, now), "podSetUpdates": build_pod_set_updates(workload, config, found)}
        )
    return _report_state(
        entry, _format_message(found, PROVISIONED) or _format_message(found, ACCEPTED) or f"ProvisioningRequest {name} is pending", now
    )


def list_superseded(workload: Json, checks: Mapping[str, Json], requests: Mapping[str, Json]) -> list[Json]:
    """Returns the requests of a workload that those of later attempts at the same check have replaced, sorted by name. Those of a check
    stay until the request of its present attempt is there. `checks` and `requests` are by name. Of each check the last 100 attempts before
    the present one are looked for."""
    replaced = set[str]()
    for check, entry in checks.items():
        attempt = count_attempts(entry)
        if request_name(workload["metadata"]["name"], check, attempt) in requests:
            former = range(max(1, attempt - MOST_FORMER), attempt)
            replaced.update(request_name(workload["metadata"]["name"], check, number) for number in former)
    return [request for name, request in sorted(requests.items()) if name in replaced and is_owned(request, workload)]


def list_withdrawn(workload: Json, requests: Mapping[str, Json]) -> list[Json]:
    """Returns the requests of a workload without quota, or of one that is finished, that are to be deleted, sorted by name; empty for any
    other. For one that is active and not finished they are those that are provisioned: these nodes are booked for it, and kept from others
    meanwhile. One that is under way stays for when it is queued again. Else they are all. Those that have ended without nodes, are being
    deleted, or belong to others are left out."""
    is_over = is_condition_true(workload, FINISHED)
    if is_condition_true(workload, QUOTA_RESERVED) and not is_over:
        return []
    waits = workload["spec"].get("active", True) is not False and not is_over
    open_ones = (r for _, r in sorted(requests.items()) if find_ending(r) is None and not r["metadata"].get("deletionTimestamp"))
    return [r for r in open_ones if is_owned(r, workload) and (is_condition_true(r, PROVISIONED) or not waits)]


def build_active_condition(check: CheckFacts, configs: Mapping[str, ProvisioningConfig], *, installed: bool) -> Condition:
    """Returns the condition Active of a check: whether it can be performed, and what is missing. `installed`: ProvisioningRequests are."""
    if check.parameters is None:
        return Condition(ACTIVE, False, "MissingParameters", "spec.parameters must name a ProvisioningRequestConfig")
    name = check.provisioning_config
    if name is None:
        message = f"spec.parameters must name a ProvisioningRequestConfig of kueue.x-k8s.io, not a {check.parameters_kind}"
        return Condition(ACTIVE, False, "BadParametersRef", message)
    if name not in configs:
        return Condition(ACTIVE, False, "ParametersNotFound", f"ProvisioningRequestConfig {name} does not exist")
    if not installed:
        return Condition(ACTIVE, False, "NotInstalled", NOT_INSTALLED)
    return Condition(ACTIVE, True, ACTIVE, "The admission check is active")


def is_owned(request: Json, workload: Json) -> bool:
    """Returns whether a request was made for the very workload: one of its owner references has the workload's uid."""
    uid = workload["metadata"]["uid"]
    return any(owner.get("uid") == uid for owner in request["metadata"].get("ownerReferences") or ())


def find_ending(request: Json) -> tuple[str, str] | None:
    """Returns the type of the True condition by which a request has ended without nodes, or lost them, and the provider's message, perhaps
    empty. None if it has not. Failed comes before CapacityRevoked, and that before BookingExpired."""
    kind = next((kind for kind in _ENDS if is_condition_true(request, kind)), None)
    return (kind, _format_message(request, kind)) if kind is not None else None


def _fail(entry: Json, config: ProvisioningConfig, ended: tuple[str, str], now: str) -> SetState:
    kind, message = ended
    return SetState(fail_check(entry, config.retry, _ENDS[kind], message or kind, now))


def _report_state(entry: Json, message: str, now: str) -> SetState | WaitForProvider:
    return WaitForProvider() if entry.get("message") == message else SetState(build_changed_check(entry, CHECK_PENDING, message, now))


def _format_message(request: Json, kind: str) -> str:
    return str((find_condition(request, kind) or {}).get("message") or "")


def _note(obj: Json, name: str) -> str | None:
    return (obj["metadata"].get("annotations") or {}).get(name)
