"""The webhook configurations, which define the requests that the API server sends to the webhook.

Every kind of job has two disjoint entries, so that a webhook that is down blocks only objects that use it: objects with
the queue-name label anywhere, and any object in namespaces labelled `topogate.dev/managed=true`. No request is sent for
kube-system, for an object that is being deleted, or for pods of what is queued itself: the API server excludes them.
The entry for labelled objects comes first: an object that the other entry has given its queue is not sent again.

A job that asks to be placed as a PodGroup has no queue: of each kind that may ask there is an entry for objects with
that annotation. It comes last, so that it sees which objects have got a queue.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.api.conversion_review import CONVERT_PATH
from core.jobs.annotations import FALSE_VALUES
from core.jobs.contract import JobKind, Reviewed
from core.jobs.kinds.pod import SETTLED_ANNOTATIONS, SETTLED_LABELS, Pod
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.registry import KINDS
from core.jobs.objects import OBJECTS, ObjectRules
from core.jobs.podgroup_annotation import Grouping
from core.jobs.templated import TemplatedKind
from core.names import GROUP, MANAGED_NAMESPACE_LABEL, PODGROUP_TOPOLOGY, QUEUE_NAME_LABEL, UNCONSTRAINED_TOPOLOGY, VERSION
from core.resource import Resource
from webhook.policy_expressions import IS_STEP_OF_TOPOGATE, IS_TOPOGATE, OWNER_KIND
from webhook.scale import SCALE_PATH, find_scalable

MUTATING_NAME = "topogate-mutating-webhook-configuration"
VALIDATING_NAME = "topogate-validating-webhook-configuration"
_TIMEOUT_S = 10
_SCALE_TIMEOUT_S = 2  # for which a webhook that hangs delays the scaling of what is not topogate's
# A Workload may be written by users of a namespace; the others are administrators' work, which the CRDs' own rules
# guard well enough while the webhook is down.
_NEVER_UNJUDGED = ("Workload",)
_NOT_SYSTEM = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}
# Finalizers are taken off by updates: deleting must work whether the webhook is up, and whatever its rules have become.
_NOT_DELETED = {"name": "is-not-being-deleted", "expression": "!has(object.metadata.deletionTimestamp)"}
_MANAGED = {"key": MANAGED_NAMESPACE_LABEL, "operator": "In", "values": ["true"]}
# Most changes are of metadata; what a start added is in the spec.
_SPEC_IS_NEW = {"name": "has-another-spec", "expression": "oldObject == null || object.?spec != oldObject.?spec"}
# What a start adds to a template at a limit exceeds it. Only what users write is judged.
_NOT_A_STEP = {"name": "is-no-step-of-topogate", "expression": f"!({IS_STEP_OF_TOPOGATE})"}
MUTATE_GROUP, VALIDATE_GROUP = "mutate-podgroup", "validate-podgroup"  # of jobs that ask for a PodGroup
_ASKS_FOR_GROUP = {
    "name": "asks-for-a-podgroup",
    "expression": f"object.metadata.?annotations[?'{PODGROUP_TOPOLOGY}'].hasValue()"
    f" || (oldObject != null && oldObject.metadata.?annotations[?'{PODGROUP_TOPOLOGY}'].hasValue())",
}


# Pods change all the time; only what makes one queued is judged again.
_IS_SETTLED_ANEW = {
    "name": "is-new-or-marked-otherwise",
    "expression": "request.operation == 'CREATE' || "
    + " || ".join(
        f"{list(names)}.exists(k, object.metadata.?{part}[?k].orValue('') != oldObject.metadata.?{part}[?k].orValue(''))"
        for part, names in (("labels", SETTLED_LABELS), ("annotations", SETTLED_ANNOTATIONS))
    ),
}


def _is_new_or_has(annotation: str) -> list[dict[str, str]]:
    """What is created, and changes of what has an annotation or a value that a start replaces; nothing where none is named."""
    replaced = f"object.spec.template.?metadata.?annotations[?'{UNCONSTRAINED_TOPOLOGY}'].orValue('') in {[*FALSE_VALUES]}"
    expression = f"oldObject == null || object.metadata.?annotations[?'{annotation}'].hasValue() || {replaced}"
    return [{"name": "is-new-or-may-undo-its-start", "expression": expression}] if annotation else []


def _build_exclusion(pod: Pod) -> dict[str, str]:
    """Returns the match condition for pods with a controller of a kind that is not queued itself."""
    kinds = sorted(f"{kind}.{group}" for kind, group in pod.left_alone)
    owned = f"({OWNER_KIND}) in {kinds}"
    all_of = f"object.metadata.ownerReferences.all(o, !has(o.controller) || !o.controller || !({owned}))"
    return {"name": "is-queued-itself", "expression": f"!has(object.metadata.ownerReferences) || {all_of}"}


def build_hook_path(action: str, group: str, version: str, kind: str) -> str:
    """Returns the path of a hook, such as `/mutate-batch-v1-job` or `/validate-kueue-x-k8s-io-v1beta2-workload`."""
    return f"/{action}-{group.replace('.', '-')}-{version}-{kind.lower()}"


def build_configurations(ca_bundle: str, client: Mapping[str, Any], kinds: Sequence[JobKind] = KINDS) -> list[dict[str, Any]]:
    """Returns the mutating and the validating configuration, in this order. `ca_bundle` is the CA of the webhook's certificate, in base64.

    `client` has the address of the webhook: `{"url": "https://..."}` (a base, paths are added) or `{"service": {...}}`.
    """

    hooks = _Hooks(client, ca_bundle)
    reviewed: tuple[Reviewed, ...] = (*kinds, *list_pod_kinds(kinds))
    found: dict[str, list[dict[str, Any]]] = {}
    for action in ("mutate", "validate"):
        jobs = [hook for kind in reviewed for hook in hooks.build_pair(action, kind)]
        groups = [hooks.build_grouping(action, kind) for kind in reviewed if isinstance(kind, Grouping)]
        own = [hooks.build_own(action, rules) for rules in OBJECTS if action == "validate" or rules.default is not None]
        found[action] = [*jobs, *groups, *own]
    found["validate"] += _scale_entries(hooks.build_client_config(SCALE_PATH), find_scalable(reviewed))
    return [
        _build_configuration("MutatingWebhookConfiguration", MUTATING_NAME, found["mutate"]),
        _build_configuration("ValidatingWebhookConfiguration", VALIDATING_NAME, found["validate"]),
    ]


@dataclass(frozen=True, slots=True)
class _Hooks:
    """Builds hooks that ask one webhook."""

    client: Mapping[str, Any]
    ca_bundle: str

    def build_client_config(self, path: str) -> dict[str, Any]:
        config: dict[str, Any] = {"caBundle": self.ca_bundle}
        if "url" in self.client:
            return config | {"url": self.client["url"].rstrip("/") + path}
        return config | {"service": {**self.client["service"], "path": path}}

    def build_pair(self, action: str, kind: Reviewed) -> list[dict[str, Any]]:
        """For objects of a kind that name a queue, and for those without one in namespaces that are managed."""
        name = f"{action[0]}{kind.kind.lower()}"
        keeps_start, keeps_with = isinstance(kind, TemplatedKind), kind.keeps_start_with if isinstance(kind, TemplatedKind) else ""
        job = (action, kind.group, kind.version, kind.kind, kind.plural, "Namespaced", kind.defaults_updates or keeps_start)
        pair = [
            self._build(f"{name}.kb.io", *job)
            | {
                "objectSelector": {"matchExpressions": [{"key": QUEUE_NAME_LABEL, "operator": "Exists"}]},
                "namespaceSelector": {"matchExpressions": [_NOT_SYSTEM]},
            },
            self._build(f"{name}.managed.topogate.dev", *job)
            | {
                "objectSelector": {"matchExpressions": [{"key": QUEUE_NAME_LABEL, "operator": "DoesNotExist"}]},
                "namespaceSelector": {"matchExpressions": [_NOT_SYSTEM, _MANAGED]},
            },
        ]
        if action == "mutate" and keeps_start:
            pair[0]["matchConditions"] = [*pair[0]["matchConditions"], _SPEC_IS_NEW, _NOT_A_STEP, *_is_new_or_has(keeps_with)]
            pair[1] |= {"rules": [{**pair[1]["rules"][0], "operations": ["CREATE"]}]}  # a change without a queue has left topogate
        more = [_NOT_A_STEP] if action == "validate" else []
        if isinstance(kind, Pod):
            more += [_build_exclusion(kind), *([_IS_SETTLED_ANEW] if action == "validate" else ())]
        for hook in pair if more else ():
            hook["matchConditions"] = [*hook.get("matchConditions", ()), *more]
        return pair

    def build_grouping(self, action: str, kind: Grouping) -> dict[str, Any]:
        """For objects of a kind with pods that are to be placed together as a PodGroup."""
        asks = MUTATE_GROUP if action == "mutate" else VALIDATE_GROUP
        name = f"{action[0]}{kind.kind.lower()}.podgroups.topogate.dev"
        hook = self._build(name, asks, kind.group, kind.version, kind.kind, kind.plural, "Namespaced", updates=True)
        return hook | {"namespaceSelector": {"matchExpressions": [_NOT_SYSTEM]}, "matchConditions": [_NOT_DELETED, _ASKS_FOR_GROUP]}

    def build_own(self, action: str, rules: ObjectRules) -> dict[str, Any]:
        """For a kind of our own API group."""
        hook = self._build(f"{action[0]}{rules.kind.lower()}.kb.io", action, GROUP, VERSION, rules.kind, rules.plural, "*")
        return hook | {"failurePolicy": "Fail" if rules.kind in _NEVER_UNJUDGED else "Ignore"}

    def _build(
        self, name: str, action: str, group: str, version: str, kind: str, plural: str, scope: str, updates: bool = False
    ) -> dict[str, Any]:
        operations = ["CREATE"] if action == "mutate" and not updates else ["CREATE", "UPDATE"]
        return {
            "name": name,
            "clientConfig": self.build_client_config(build_hook_path(action, group, version, kind)),
            "rules": [{"apiGroups": [group], "apiVersions": [version], "resources": [plural], "operations": operations, "scope": scope}],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "timeoutSeconds": _TIMEOUT_S,
        } | ({"matchConditions": [_NOT_DELETED]} if "UPDATE" in operations else {})


def _scale_entries(client_config: Mapping[str, Any], resources: Sequence[Resource]) -> list[dict[str, Any]]:
    """Of the subresource `scale`, which does not show the labels of its object: for all writers but topogate. Outside of managed
    namespaces most of what is scaled is not topogate's, so that there it can be scaled while the webhook is down."""
    by_group: dict[str, list[Resource]] = {}
    for resource in resources:
        by_group.setdefault(resource.group, []).append(resource)
    rules = [
        {
            "apiGroups": [group],
            "apiVersions": sorted({resource.version for resource in members}),
            "resources": sorted(f"{resource.plural}/scale" for resource in members),
            "operations": ["UPDATE"],
            "scope": "Namespaced",
        }
        for group, members in sorted(by_group.items())
    ]
    another = f"!{IS_TOPOGATE}"
    return [
        {
            "name": name,
            "clientConfig": client_config,
            "rules": rules,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": failure_policy,
            "matchPolicy": "Equivalent",
            "timeoutSeconds": timeout_s,
            "namespaceSelector": {"matchExpressions": [_NOT_SYSTEM, where]},
            "matchConditions": [{"name": "written-by-another", "expression": another}],
        }
        for name, failure_policy, timeout_s, where in (
            ("vscale.managed.topogate.dev", "Fail", _TIMEOUT_S, _MANAGED),
            ("vscale.topogate.dev", "Ignore", _SCALE_TIMEOUT_S, {**_MANAGED, "operator": "NotIn"}),
        )
    ]


def build_conversion(ca_bundle: str, client: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `spec.conversion` of the CRDs with versions that topogate converts; the parameters are those of `build_configurations`."""
    if "url" in client:
        where: dict[str, Any] = {"url": client["url"].rstrip("/") + CONVERT_PATH}
    else:
        where = {"service": {**client["service"], "path": CONVERT_PATH}}
    return {"strategy": "Webhook", "webhook": {"clientConfig": {"caBundle": ca_bundle, **where}, "conversionReviewVersions": ["v1"]}}


def _build_configuration(kind: str, name: str, hooks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": hooks}
