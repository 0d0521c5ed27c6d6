"""The webhooks of the chart, asked in process: their registration decides what they are asked, their real code answers.

The expressions of match conditions are not evaluated but known by name; one that is not known here counts as true, so that the webhook
decides. Of the ValidatingAdmissionPolicies those are played that keep users from unsuspending what is queued, since nothing else does;
the others are left to the real API server.
"""

import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.api.admission_review import AdmissionRequest, GroupVersionKind, GroupVersionResource, UserInfo, patch_of
from core.jobs.annotations import FALSE_VALUES
from core.names import FIELD_MANAGER, MIN_PARALLELISM, QUEUE_NAME_LABEL, UNCONSTRAINED_TOPOLOGY, WORKLOAD_ANNOTATION
from sim.apiserver.files import read_yaml
from sim.apiserver.kinds import Kind
from sim.apiserver.patches import apply_json_patch
from sim.apiserver.server import Refused, Request, Resource, Server

Json = dict[str, Any]
Answer = Callable[[str, AdmissionRequest], Coroutine[Any, Any, Json]]
FILES = Path(__file__).parents[2] / "charts" / "topogate" / "files"
USER = "user"  # of a namespace, with the role `edit`
_STARTED = ("spec", "template", "metadata", "annotations", WORKLOAD_ANNOTATION)
_TOPOGATE = "system:serviceaccount:topogate-system:"  # those that may write the status of Workloads
_OPERATIONS = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}


class Hook:
    """One webhook as it is registered."""

    def __init__(self, registered: Mapping[str, Any]) -> None:
        self.name: str = registered["name"]
        self.path: str = registered["clientConfig"]["service"]["path"]
        self._rules = registered["rules"]
        self._object = registered.get("objectSelector") or {}
        self._namespace = registered.get("namespaceSelector") or {}
        self._conditions = [condition["name"] for condition in registered.get("matchConditions") or ()]

    def covers(self, kind: Kind, subresource: str, operation: str) -> bool:
        """Whether the hook's rules name the resource of a write."""
        resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
        return any(_covers(rule, kind, resource, operation) for rule in self._rules)

    def is_asked(self, old: Json | None, new: Json | None, namespace: Json, manager: str) -> bool:
        """Whether the hook is asked of a write by a field manager to a resource that its rules name."""
        if not any(_fits(self._object, obj) for obj in (old, new) if obj is not None) or not _fits(self._namespace, namespace):
            return False
        return all(_holds(name, old, new, manager) for name in self._conditions)


def _covers(rule: Mapping[str, Any], kind: Kind, resource: str, operation: str) -> bool:
    return (
        kind.group in rule["apiGroups"]
        and kind.version in rule["apiVersions"]
        and any(each in (resource, "*", f"*/{resource.partition('/')[2]}") for each in rule["resources"])
        and (operation in rule["operations"] or "*" in rule["operations"])
    )


def _fits(selector: Mapping[str, Any], obj: Json) -> bool:
    labels = obj["metadata"].get("labels") or {}
    for wanted in selector.get("matchExpressions") or ():
        value, operator, values = labels.get(wanted["key"]), wanted["operator"], wanted.get("values") or ()
        fits = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[operator]
        if not fits:
            return False
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())


def _holds(condition: str, old: Json | None, new: Json | None, manager: str) -> bool:
    if condition == "is-not-being-deleted":
        return new is None or "deletionTimestamp" not in new["metadata"]
    if condition == "has-another-spec":
        return old is None or new is None or old.get("spec") != new.get("spec")
    if condition == "is-new-or-may-undo-its-start":
        return old is None or new is None or MIN_PARALLELISM in (new["metadata"].get("annotations") or {}) or _asks_for_false(new)
    if condition == "is-no-step-of-topogate":
        return old is None or manager != FIELD_MANAGER
    return True


def _asks_for_false(job: Json) -> bool:
    notes = (job["spec"]["template"].get("metadata") or {}).get("annotations") or {}
    return notes.get(UNCONSTRAINED_TOPOLOGY) in FALSE_VALUES


class UnsuspendPolicy:
    """A policy by which a queued object of one kind is not unsuspended by its user, who may not write the status of Workloads."""

    def __init__(self, policy: Mapping[str, Any]) -> None:
        self._name: str = policy["metadata"]["name"]
        self._message: str = policy["spec"]["validations"][0]["message"]
        self._rules = policy["spec"]["matchConstraints"]["resourceRules"]
        conditions = {each["name"]: each["expression"] for each in policy["spec"]["matchConditions"]}
        self._is_for_started = "was-started" in conditions
        self._path = conditions["was-suspended"].rpartition("oldObject.")[2].split(".")

    def judge(self, request: Request, old: Json, new: Json) -> None:
        """Raises Refused."""
        kind, labels = request.kind, new["metadata"].get("labels") or {}
        if not any(_covers(rule, kind, kind.plural, "UPDATE") for rule in self._rules) or QUEUE_NAME_LABEL not in labels:
            return
        if self._is_for_started and not _find(old, _STARTED):
            return
        if _find(old, self._path) and not _find(new, self._path):
            why = f"ValidatingAdmissionPolicy '{self._name}' with binding '{self._name}' denied request: {self._message}"
            raise Refused(403, "Forbidden", f'{kind.plural}.{kind.group} "{request.name}" is forbidden: {why}')


def _find(obj: Json, path: Sequence[str]) -> Any:
    found: Any = obj
    for name in path:
        found = (found or {}).get(name)
    return found


class Admission:
    """Asks the webhooks of every write. `exempt` users, such as controllers of the cluster, are asked of as everybody is."""

    def __init__(self, server: Server, answer: Answer) -> None:
        self._server, self._answer = server, answer
        policies = (read_yaml(path) for path in sorted((FILES / "policies").glob("topogate-unsuspend-*.yaml")))
        self._policies = [UnsuspendPolicy(each) for file in policies for each in file if each["kind"] == "ValidatingAdmissionPolicy"]
        registered = (read_yaml(FILES / "webhooks" / f"{name}.yaml") for name in ("mutating", "validating"))
        self._mutating, self._validating = ([Hook(hook) for hook in each["webhooks"]] for each in registered)
        self._uids = itertools.count(1)
        self._covering: dict[tuple[Resource, str, str, str], tuple[list[Hook], list[Hook]]] = {}

    def __call__(self, request: Request, old: Json | None, new: Json | None) -> Json | None:
        """The object as it is to be stored. Raises Refused."""
        operation = _OPERATIONS[request.verb]
        if request.verb == "patch" and old is None:
            operation = "CREATE"
        mutating, validating = self._find_hooks(request.kind, request.subresource, operation)
        if not mutating and not validating:
            return new
        namespace = self._find_namespace(request)
        manager = request.params.get("fieldManager", "") if request.user.startswith(_TOPOGATE) else ""
        for hook in mutating:
            if new is not None and hook.is_asked(old, new, namespace, manager):
                response = self._ask(hook, request, operation, old, new)
                new = apply_json_patch(new, patch_of(response))
        if operation == "UPDATE" and request.user == USER and not request.subresource and old is not None and new is not None:
            for policy in self._policies:
                policy.judge(request, old, new)
        for hook in validating:
            if hook.is_asked(old, new, namespace, manager):
                self._ask(hook, request, operation, old, new)
        return new

    def _find_hooks(self, kind: Kind, subresource: str, operation: str) -> tuple[list[Hook], list[Hook]]:
        """The mutating and the validating webhooks whose rules name a resource; looked for once."""
        key = kind.resource, kind.version, subresource, operation
        if key not in self._covering:
            self._covering[key] = (
                [hook for hook in self._mutating if hook.covers(kind, subresource, operation)],
                [hook for hook in self._validating if hook.covers(kind, subresource, operation)],
            )
        return self._covering[key]

    def _find_namespace(self, request: Request) -> Json:
        stored = self._server.objects[("", "namespaces")].get(("", request.namespace))
        return stored.obj if stored is not None else {"metadata": {}}

    def _ask(self, hook: Hook, request: Request, operation: str, old: Json | None, new: Json | None) -> Json:
        kind = request.kind
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        review = AdmissionRequest.model_construct(
            uid=f"review-{next(self._uids)}",
            kind=GroupVersionKind(group=kind.group, version=kind.version, kind=kind.kind),
            resource=GroupVersionResource(group=kind.group, version=kind.version, resource=kind.plural),
            sub_resource=request.subresource,
            name=request.name or str((new or old or {"metadata": {}})["metadata"].get("name") or ""),
            namespace=request.namespace,
            operation=operation,  # type: ignore[arg-type]
            user_info=UserInfo(username=request.user),
            object={**head, **new} if new is not None else None,
            old_object={**head, **old} if old is not None else None,
            dry_run=False,
        )
        response: Json = run_at_once(self._answer(hook.path, review))["response"]
        if not response["allowed"]:
            status = response["status"]
            message = f'admission webhook "{hook.name}" denied the request: {status["message"]}'
            raise Refused(status["code"], status["reason"], message, **(status.get("details") or {}))
        return response


def run_at_once(work: Coroutine[Any, Any, Json]) -> Json:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        found: Json = done.value
        return found
    work.close()
    raise AssertionError("a review waited: what it looks up must be there at once")
