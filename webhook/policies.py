"""The ValidatingAdmissionPolicies, which the API server evaluates without the webhook: which clients may change what,
and a warning for objects that are not queued although their annotations suggest it.

A namespace user may write jobs and pods, but not what topogate alone decides: removing the gate of a pod, starting a
queued job, setting the owner of a pod. The API server's own authorizer distinguishes users from controllers: a client
that may write the status of Workloads is topogate (or an administrator), and one that may write the status of a JobSet
is the controller that creates Jobs for it. So no user names are configured, the policies hold while the webhook is
down, and topogate's own writes cost no call.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.jobs.contract import JobKind, ResizedByPart
from core.jobs.kinds.pod_parents import Deployment
from core.jobs.schema_check import Shape
from core.names import (
    ALLOW_DAEMON_SETS,
    BORROWED_SPARES,
    ELASTIC_JOB,
    GROUP,
    MANAGED_NAMESPACE_LABEL,
    QUEUE_NAME_LABEL,
    SLICE_NAME,
    SLICE_REPLACES,
    SPARES,
    SYSTEM_NAMESPACE,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)
from core.names import MADE_BY as MADE_BY_ANNOTATION
from webhook.owner_expressions import (
    IS_LWS,
    IS_MADE_TO_ORPHAN,
    KEEPS_LABELS,
    MADE_BY,
    has_new_owner,
    is_controller,
    is_known,
    is_orphaning,
    list_new_owner_variables,
    list_old_owners,
    require_controller,
)
from webhook.pod_policies import list_pod_policies
from webhook.policy_expressions import (
    IN_MANAGED,
    IS_TOPOGATE,
    Kind,
    build_any,
    build_controlling,
    build_denial,
    build_pod_rule,
    build_policy,
    has_field,
    has_gate,
    is_set,
    list_parents,
    list_rules,
)
from webhook.unqueued import build_cron_job_policy, build_unqueued_policy

# The service account where topogate is installed without the chart; the chart puts in its own.
RECONCILER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:topogate-reconciler"
_PLACES = (SLICE_NAME, SLICE_REPLACES, SPARES, BORROWED_SPARES, MADE_BY_ANNOTATION)
_IS_IN_MANAGED = (
    f"has(namespaceObject.metadata.labels) && '{MANAGED_NAMESPACE_LABEL}' in namespaceObject.metadata.labels"
    f" && namespaceObject.metadata.labels['{MANAGED_NAMESPACE_LABEL}'] == 'true'"
)


class _ReplicaSet(Deployment):
    """What stands between a Deployment and its pods; never queued."""

    kind, plural = "ReplicaSet", "replicasets"


_REPLICA_SET = _ReplicaSet()


def list_policies(kinds: Sequence[JobKind], reconciler: str = RECONCILER) -> list[dict[str, Any]]:
    """Returns the policies, each before its binding; the last two pairs warn, all others deny. `reconciler`: the name of its account."""
    made = [*list_pod_policies(kinds, reconciler), *_build_owner_policies(kinds), _build_owned_pod_policy(kinds)]
    made += [_build_queue_policy(kinds), _refuse_daemon_sets(), _build_place_policy()]
    made += [_build_part_policy(kinds, *part) for part in _list_possible_parts(kinds)]
    made += [_build_gate_policy(kind, kind.always_gated) for kind in kinds if kind.always_gated]
    made += [_build_unsuspending_policy(kinds, kind) for kind in kinds]
    bound = [*((policy, "Deny") for policy in made), (build_unqueued_policy(kinds), "Warn"), (build_cron_job_policy(), "Warn")]
    return [obj for policy, action in bound for obj in (policy, _build_binding(policy, action))]


def _build_owner_policies(kinds: Sequence[JobKind]) -> Iterator[dict[str, Any]]:
    """What belongs to a queued object, or to a DaemonSet, is not queued itself, so only that object's controller may
    set such an owner. Nearly all new pods have one, and other objects rarely get one, so only these are looked at first by a condition."""
    validations, variables = [require_controller(kinds, "variables.owners", MADE_BY)], list_new_owner_variables()
    yield build_policy("owners-of-pods", [build_pod_rule("CREATE")], validations, [], variables)
    rules = list_rules((*kinds, *list_parents(kinds), _REPLICA_SET), ["CREATE", "UPDATE"])
    yield build_policy("owners", rules, validations, [{"name": "has-a-new-owner", "expression": has_new_owner()}], variables)


def _refuse_daemon_sets() -> dict[str, Any]:
    """Pods of a DaemonSet are never queued: in a managed namespace its users make none unless an administrator allows it there."""
    allowed = f"namespaceObject.metadata.?annotations[?'{ALLOW_DAEMON_SETS}'].orValue('') == 'true'"
    because = f'DaemonSets are made by administrators, or where the Namespace has the annotation {ALLOW_DAEMON_SETS}: "true"'
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["daemonsets"], "operations": ["CREATE", "UPDATE"]}
    return build_policy(
        "daemonsets",
        [rule | {"scope": "Namespaced"}],
        [build_denial(allowed, f"this namespace is managed by topogate, and no quota counts a DaemonSet: {because}")],
        [
            {"name": "is-new-or-changed", "expression": "oldObject == null || object.spec != oldObject.spec"},
            {"name": "written-by-a-user", "expression": f"!{IS_TOPOGATE}"},
        ],
        namespaces=IN_MANAGED,
    )


def _build_owned_pod_policy(kinds: Sequence[JobKind]) -> dict[str, Any]:
    """Pods of what a part of a queued object controls are not queued themselves.

    No right shows which client acts for a pod, so in a managed namespace only the one controller that needs it may make
    a pod the controller of an object that creates pods.
    """
    return build_policy(
        "owned-by-pods",
        list_rules((*list_parents(kinds), _REPLICA_SET), ["CREATE", "UPDATE"]),
        [
            build_denial(
                f"!('Pod.' in variables.owners) || {IS_LWS} || {IS_TOPOGATE}",
                "this namespace is managed by topogate: a Pod may be an owner of this object, but not its controller",
            )
        ],
        [{"name": "has-a-new-owner", "expression": has_new_owner()}],
        list_new_owner_variables(),
        namespaces=IN_MANAGED,
    )


def _list_possible_parts(kinds: Sequence[JobKind]) -> list[tuple[Kind, str]]:
    """Kinds that others make objects of, and how one shows that it runs by an admission, or waits for one."""
    possible: tuple[Kind, ...] = (*kinds, *list_parents(kinds), _REPLICA_SET)
    suspended = {kind.plural: f" || ({_is_suspended(kind, 'oldObject')})" for kind in kinds}
    return [
        (kind, condition + suspended.get(kind.plural, ""))
        for kind in possible
        if (condition := _build_naming_question(kind.spec_shape, "oldObject.spec"))
    ]


def _build_part_policy(kinds: Sequence[JobKind], kind: Kind, is_admitted: str) -> dict[str, Any]:
    """What another object's controller made, and what runs by that object's admission or waits for it, is changed by that controller
    alone: it starts the part as it finds it. Others delete it only with its pods: its controller creates it again, and the new pods
    would run beside the old ones."""
    because = (
        "this object is a part of a {kind}: only the controller of {kind} may change its spec, its owner or labels it has, or delete it"
        " without its pods"
    )
    is_resized = any(isinstance(above, ResizedByPart) and above.part.plural == kind.plural for above in kinds)
    return build_policy(
        f"parts-{kind.plural}",
        list_rules([kind], ["UPDATE", "DELETE"]),
        [
            require_controller(kinds, "variables.owners", because),
            build_denial(
                f"variables.owners.size() > 0 || object == null || {is_set('object', 'labels', QUEUE_NAME_LABEL)}"
                f" || {is_set('oldObject', 'labels', QUEUE_NAME_LABEL)}"
                f" || !({_IS_IN_MANAGED})",
                f"this {kind.kind} has no owner and no queue in a namespace that is managed by topogate, and is not changed "
                f"or started: give it the label {QUEUE_NAME_LABEL}, or delete it",
            ),
        ],
        [
            {
                "name": "is-changed",
                "expression": f"object == null ? {is_orphaning(of_job=kind.plural == 'jobs')} : object.spec != oldObject.spec"
                f" || {build_controlling('object')} != {build_controlling('oldObject')} || !{KEEPS_LABELS} || {IS_MADE_TO_ORPHAN}",
            },
            {"name": "runs-by-an-admission", "expression": f"has(oldObject.spec) && ({is_admitted})"},
            {"name": "written-by-another", "expression": f"!{IS_TOPOGATE}"},
            *([{"name": "is-more-than-resized", "expression": f"!({_is_resized_cluster()})"}] if is_resized else ()),
        ],
        [list_old_owners()],
    )


def _is_resized_cluster() -> str:
    """Whether nothing of an elastic RayCluster's spec is changed but how many workers it has, as the autoscaler in its head's pod does with
    an account of its own: the workers that are added wait behind the gate of their template until they are admitted."""
    counts = "['replicas', 'scaleStrategy']"
    gated = f"g.template.spec.?schedulingGates.orValue([]).exists(s, s.name == '{TOPOLOGY_GATE}')"
    group = f"g.all(k, k in {counts} || (k in o && o[k] == g[k])) && o.all(k, k in {counts} || k in g)"
    return " && ".join(
        (
            "object != null",
            f"{is_set('oldObject', 'annotations', ELASTIC_JOB)} && oldObject.metadata.annotations['{ELASTIC_JOB}'] == 'true'",
            f"{build_controlling('oldObject')}.size() > 0 && {build_controlling('object')} == {build_controlling('oldObject')}",
            f"{KEEPS_LABELS} && !{IS_MADE_TO_ORPHAN}",
            "has(object.spec.workerGroupSpecs) && has(oldObject.spec.workerGroupSpecs)",
            "object.spec.all(k, k == 'workerGroupSpecs' || (k in oldObject.spec && oldObject.spec[k] == object.spec[k]))",
            "oldObject.spec.all(k, k in object.spec)",
            "object.spec.workerGroupSpecs.size() == oldObject.spec.workerGroupSpecs.size()",
            f"object.spec.workerGroupSpecs.all(g, {gated} && "
            f"oldObject.spec.workerGroupSpecs.exists(o, o.groupName == g.groupName && {group}))",
        )
    )


def _is_suspended(kind: JobKind, obj: str) -> str:
    *way, last = map(str, kind.suspend_path)
    here = ".".join((obj, *way))
    return f"{has_field(here, last)} && {here}.{last}"


def _build_naming_question(shape: Shape, here: str) -> str:
    """Whether annotations anywhere in a part of an object name a workload, as those of started pod templates do; '' where
    that part has none. As deep as topogate reads it."""
    return build_any(shape, here, "annotations", lambda there: f"'{WORKLOAD_ANNOTATION}' in {there}")


def _build_queue_policy(kinds: Sequence[JobKind]) -> dict[str, Any]:
    """In a managed namespace whatever can be queued is."""
    return build_policy(
        "queues",
        list_rules(kinds, ["UPDATE"]),
        [
            build_denial(
                f"{is_set('object', 'labels', QUEUE_NAME_LABEL)} || {IS_TOPOGATE}",
                f"this namespace is managed by topogate: the label {QUEUE_NAME_LABEL} cannot be taken off",
            )
        ],
        [{"name": "was-queued", "expression": is_set("oldObject", "labels", QUEUE_NAME_LABEL)}],
        namespaces=IN_MANAGED,
    )


def _build_place_policy() -> dict[str, Any]:
    """Quota and places are counted by these annotations of a Workload: which place and pods it takes over, and which nodes it holds beside
    those of its admission."""
    new, old = (f"{obj}.metadata.?annotations[?n].orValue('')" for obj in ("object", "oldObject"))
    rule = {"apiGroups": [GROUP], "apiVersions": ["v1beta1", "v1beta2"], "resources": ["workloads"], "operations": ["CREATE", "UPDATE"]}
    expression = f"{list(_PLACES)}.all(n, {new} == (oldObject == null ? '' : {old})) || {IS_TOPOGATE}"
    denial = build_denial(expression, f"topogate alone writes these annotations of a Workload: {', '.join(_PLACES)}")
    return build_policy("places", [rule | {"scope": "Namespaced"}], [denial], [])


def _build_gate_policy(kind: JobKind, template: Sequence[str | int]) -> dict[str, Any]:
    """The gate on the template of a queued job keeps its pods from running before it is admitted."""
    way = ".".join(map(str, template))
    old, new = (f"{obj}.{way}" for obj in ("oldObject", "object"))
    return build_policy(
        f"gated-{kind.plural}",
        list_rules([kind], ["UPDATE"]),
        [
            build_denial(
                f"{has_gate(new, TOPOLOGY_GATE)} || {IS_TOPOGATE}",
                f"the scheduling gate {TOPOLOGY_GATE} of a queued {kind.kind} is taken off by topogate",
            )
        ],
        [
            {"name": "is-queued", "expression": is_set("object", "labels", QUEUE_NAME_LABEL)},
            {"name": "was-gated", "expression": has_gate(old, TOPOLOGY_GATE)},
        ],
    )


def _build_unsuspending_policy(kinds: Sequence[JobKind], kind: JobKind) -> dict[str, Any]:
    """A queued object without gates on its pods must not be started by hand; a part of another one, to which labels were
    copied, is started by the controller of that. A kind with an always gated template may be started by hand, but not while it is
    stopped: the template is the started one until its pods are gone, and the quota is not free before."""
    message = (
        f"a queued {kind.kind} is started by topogate once it is admitted; to queue a suspended one again, "
        f"take the label {QUEUE_NAME_LABEL} off and put it on again"
    )
    conditions = []
    if kind.always_gated:
        message = f"this {kind.kind} is being stopped: unsuspend it when its pods are gone and its template is its own again"
        conditions = [
            {"name": "was-started", "expression": f"has(oldObject.spec) && {_build_naming_question(kind.spec_shape, 'oldObject.spec')}"}
        ]
    by_its_controller = f"{is_known(kinds, 'variables.owners')} && {is_controller(kinds, 'variables.owners')}"
    return build_policy(
        f"unsuspend-{kind.plural}",
        list_rules([kind], ["UPDATE"]),
        [build_denial(f"{IS_TOPOGATE} || ({by_its_controller})", message)],
        [
            {"name": "is-queued", "expression": is_set("object", "labels", QUEUE_NAME_LABEL)},
            {"name": "was-suspended", "expression": _is_suspended(kind, "oldObject")},
            {"name": "is-unsuspended", "expression": f"!({_is_suspended(kind, 'object')})"},
            *conditions,
        ],
        [list_old_owners()],
    )


def _build_binding(policy: Mapping[str, Any], action: str = "Deny") -> dict[str, Any]:
    name = policy["metadata"]["name"]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": [action]},
    }
