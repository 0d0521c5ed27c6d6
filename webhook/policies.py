"""The ValidatingAdmissionPolicies, which the API server evaluates without the webhook: which clients may change what,
and a warning for objects that are not queued although their annotations suggest it.

A namespace user may write jobs and pods, but not what topogate alone decides: removing the gate of a pod, starting a
queued job, setting the owner of a pod. The API server's own authorizer distinguishes users from controllers: a client
that may write the status of Workloads is topogate (or an administrator), and one that may write the status of a JobSet
is the controller that creates Jobs for it. So no user names are configured, the policies hold while the webhook is
down, and topogate's own writes cost no call.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from core.jobs.contract import JobKind, ResizedByPart
from core.jobs.kinds.pod import STATIC_POD
from core.jobs.kinds.pod_parents import Deployment, LeaderWorkerSet
from core.jobs.pod_rules import MAX_GRACE_S
from core.jobs.schema_check import Shape
from core.names import (
    ADMISSION_GATE,
    ALLOW_DAEMON_SETS,
    ELASTIC_JOB,
    GROUP,
    LWS_GROUP_INDEX_LABEL,
    LWS_NAME_LABEL,
    LWS_WORKER_INDEX_LABEL,
    MANAGED,
    MANAGED_NAMESPACE_LABEL,
    PODSET_LABEL,
    QUEUE_NAME_LABEL,
    SLICE_NAME,
    SYSTEM_NAMESPACE,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)
from webhook.limits import GATES, build_evictions, build_grace, build_limits
from webhook.policy_expressions import (
    IN_MANAGED,
    IS_TOPOGATE,
    OWNER_KIND,
    Kind,
    build_any,
    build_controlling,
    build_pod_rule,
    build_policy,
    build_value,
    has_field,
    has_gate,
    is_set,
    list_parents,
    list_rules,
)
from webhook.unqueued import build_cron_job_policy, build_unqueued_policy

_IS_LWS = (  # its controller may label pods after they are made
    f"authorizer.group('{LeaderWorkerSet.group}').resource('{LeaderWorkerSet.plural}').subresource('status')"
    ".namespace(request.namespace).check('update').allowed()"
)
_MADE_BY = "metadata.ownerReferences: only the controller of {kind} may make objects that a {kind} controls"
# The service account where topogate is installed without the chart; the chart puts in its own.
RECONCILER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:topogate-reconciler"
_KEPT_BY_RECONCILER = (
    "containers",
    "initContainers",
    "ephemeralContainers",
    "activeDeadlineSeconds",
    "resources",
    "terminationGracePeriodSeconds",
)
_SAME_OWNER = "o.kind == p.kind && o.apiVersion == p.apiVersion && o.uid == p.uid"
# Whether all labels that the object had are as they were.
_KEEPS_LABELS = (
    "(!has(oldObject.metadata.labels) || oldObject.metadata.labels.all(k, has(object.metadata.labels)"
    " && k in object.metadata.labels && object.metadata.labels[k] == oldObject.metadata.labels[k]))"
)


def _is_orphaning(of_job: bool) -> str:
    """Whether a deletion leaves behind what the object controls: by its options, or else by the finalizer that `--cascade=orphan` sets. A
    Job of batch/v1 that is deleted without any of them leaves its pods behind, too."""
    rest = "(oldObject.metadata.?finalizers.orValue([]).exists(f, f == 'foregroundDeletion') ? '' : 'Orphan')" if of_job else "''"
    by_finalizer = f"(oldObject.metadata.?finalizers.orValue([]).exists(f, f == 'orphan') ? 'Orphan' : {rest})"
    policy = "request.options.?propagationPolicy.orValue('')"
    return (
        "(request.options.?orphanDependents.orValue(false) == true || (!request.options.?orphanDependents.hasValue()"
        f" && ({policy} == '' ? {by_finalizer} : {policy}) == 'Orphan'))"
    )


_IS_MADE_TO_ORPHAN = (
    "(object.metadata.?finalizers.orValue([]).exists(f, f == 'orphan')"
    " && !oldObject.metadata.?finalizers.orValue([]).exists(f, f == 'orphan'))"
)


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
    made = [
        _build_pod_policy(kinds),
        _build_dependents_policy(kinds),
        _build_owner_policy(kinds),
        _name_workload(kinds),
        _build_owned_pod_policy(kinds),
        _build_queue_policy(kinds),
        _refuse_mirror_pods(),
        _refuse_daemon_sets(),
        _limit_reconciler(reconciler),
    ]
    made += [build_limits(f"!{IS_TOPOGATE}"), build_grace(), build_evictions(), _refuse_resizing()]
    made += [_build_part_policy(kinds, *part) for part in _list_possible_parts(kinds)]
    made += [_build_gate_policy(kind, kind.always_gated) for kind in kinds if kind.always_gated]
    made += [_build_unsuspending_policy(kinds, kind) for kind in kinds]
    bound = [*((policy, "Deny") for policy in made), (build_unqueued_policy(kinds), "Warn"), (build_cron_job_policy(), "Warn")]
    return [obj for policy, action in bound for obj in (policy, _build_binding(policy, action))]


def _build_pod_policy(kinds: Sequence[JobKind]) -> dict[str, Any]:
    """Gates of pods, and the marks that name their workload.

    One policy with one question before it: the API server makes a copy of both objects for each policy's questions,
    again for its rules and twice for its messages, and of the pods of large jobs topogate writes each at least once.
    """
    old, new = (f"(has({obj}.metadata.ownerReferences) ? {obj}.metadata.ownerReferences : [])" for obj in ("oldObject", "object"))
    policy = build_policy(
        "pods",
        [build_pod_rule("UPDATE")],
        [*_build_mark_policy(), *_build_kept_owner_policy(kinds)],
        [
            {"name": "written-by-another", "expression": f"!{IS_TOPOGATE}"},
            {
                "name": "is-gated-or-ours-or-given-away",
                "expression": f"({' || '.join(has_gate('oldObject', gate) for gate in GATES)})"
                f" || {is_set('oldObject', 'annotations', WORKLOAD_ANNOTATION)}"
                f" || {is_set('object', 'annotations', WORKLOAD_ANNOTATION)}"
                f" || {old} != {new}",
            },
        ],
    )
    was_ours = is_set("oldObject", "annotations", WORKLOAD_ANNOTATION)
    policy["spec"]["variables"] = [
        *_list_new_owner_variables(),
        _list_old_owners() | {"name": "before"},
        {
            "name": "left",
            "expression": f"{was_ours} ? {build_controlling('oldObject')}"
            f".filter(o, !{build_controlling('object')}.exists(p, {_SAME_OWNER})).map(o, {OWNER_KIND}) : []",
        },
    ]
    return policy


def _build_mark_policy() -> list[dict[str, Any]]:
    """Gates, labels and annotations of pods that topogate has set."""
    validations = [
        {
            "expression": f"!{has_gate('oldObject', gate)} || {has_gate('object', gate)}",
            "message": f"the scheduling gate {gate} is taken off by topogate once the pod has its place",
            "reason": "Forbidden",
        }
        for gate in GATES
    ]
    marks = (("annotations", WORKLOAD_ANNOTATION), ("annotations", SLICE_NAME), ("labels", PODSET_LABEL), ("labels", MANAGED))
    for part, name in marks:
        validations.append(
            {
                "expression": f"{build_value('oldObject', part, name)} == {build_value('object', part, name)}",
                "message": f"{name} names the owner of this pod and cannot be changed",
                "reason": "Forbidden",
            }
        )
    return [
        *validations,
        *(
            {
                "expression": f"{build_value('oldObject', 'labels', name)} == {build_value('object', 'labels', name)} || {_IS_LWS}",
                "message": f"{name} says which workload this pod is of and cannot be changed",
                "reason": "Forbidden",
            }
            for name in (LWS_NAME_LABEL, LWS_GROUP_INDEX_LABEL, LWS_WORKER_INDEX_LABEL)
        ),
    ]


def _build_kept_owner_policy(kinds: Sequence[JobKind]) -> list[dict[str, Any]]:
    """The owner of a pod of an admitted workload, and the labels by which that finds it."""
    known = [_show_key(kind) for kind in _list_controllers(kinds)]
    return [
        _require_controller(kinds, "variables.owners", _MADE_BY),
        _require_controller(
            kinds, "variables.left", "only the controller of {kind} may release a pod that was admitted as a part of a {kind}"
        ),
        {
            "expression": f"variables.left.all(k, k in {known})",
            "message": "a pod of an admitted workload keeps its controlling owner",
            "reason": "Forbidden",
        },
        {
            # A controller finds its pods by labels, and makes others for those that it does not find.
            "expression": f"!{is_set('oldObject', 'annotations', WORKLOAD_ANNOTATION)}"
            f" || ({is_set('oldObject', 'labels', MANAGED)} && !variables.before.exists(k, k in {known}))"
            f" || {_KEEPS_LABELS} || (variables.before.exists(k, k in {known}) && {_is_controller(kinds, 'variables.before')})",
            "message": "metadata.labels: the labels of a pod of an admitted workload cannot change or go; others can be added",
            "reason": "Forbidden",
        },
        {
            "expression": f"!{_IS_MADE_TO_ORPHAN}",
            "message": "a pod of an admitted workload cannot have the finalizer orphan",
            "reason": "Forbidden",
        },
    ]


def _build_dependents_policy(kinds: Sequence[JobKind]) -> dict[str, Any]:
    """A pod that is made again takes along the pods that it controls, as the driver of a SparkApplication does its executors."""
    policy = build_policy(
        "orphans",
        [build_pod_rule("DELETE")],
        [_require_controller(kinds, "variables.owners", "only the controller of {kind} may delete this pod with the policy Orphan")],
        [
            {"name": "leaves-dependents", "expression": _is_orphaning(of_job=False)},
            {"name": "is-of-a-workload", "expression": is_set("oldObject", "annotations", WORKLOAD_ANNOTATION)},
            {"name": "deleted-by-another", "expression": f"!{IS_TOPOGATE}"},
        ],
    )
    policy["spec"]["variables"] = [_list_old_owners()]
    return policy


def _list_controllers(kinds: Sequence[JobKind]) -> list[tuple[str, str, str]]:
    """Kind, group and plural of whatever makes objects that are not queued themselves."""
    known = [(kind.kind, kind.group, kind.plural) for kind in kinds]
    known += [(kind.kind, kind.group, kind.plural) for kind in list_parents(kinds)]
    return [
        *known,
        ("DaemonSet", "apps", "daemonsets"),
        ("ReplicaSet", "apps", "replicasets"),
        ("ReplicationController", "", "replicationcontrollers"),
    ]


def _show_key(controller: tuple[str, str, str]) -> str:
    """Kind and group as `OWNER_KIND` writes them."""
    return ".".join(controller[:2])


def _is_controller(kinds: Sequence[JobKind], owners: str) -> str:
    """Whether the writer is the controller of each known kind in a list of `OWNER_KIND`: it may write the status of that kind's objects."""
    return " && ".join(
        f"(!('{_show_key(controller)}' in {owners}) || authorizer.group('{controller[1]}').resource('{controller[2]}')"
        ".subresource('status').namespace(request.namespace).check('update').allowed())"
        for controller in _list_controllers(kinds)
    )


def _require_controller(kinds: Sequence[JobKind], owners: str, message: str) -> dict[str, str]:
    """The same as a rule; `message` names the kind as {kind}."""
    kind = f"' + {owners}[0].split('.')[0] + '"
    return {
        "expression": _is_controller(kinds, owners),
        "message": "only the controller of its owner's kind may do this",
        "messageExpression": f"'{message.format(kind=kind)}'",
        "reason": "Forbidden",
    }


def _build_owner_policy(kinds: Sequence[JobKind]) -> dict[str, Any]:
    """What belongs to a queued object, or to a DaemonSet, is not queued itself, so only that object's controller may
    set such an owner."""
    rules = [build_pod_rule("CREATE"), *list_rules((*kinds, *list_parents(kinds), _REPLICA_SET), ["CREATE", "UPDATE"])]
    policy = build_policy("owners", rules, [_require_controller(kinds, "variables.owners", _MADE_BY)], [])
    policy["spec"]["variables"] = _list_new_owner_variables()
    return policy


def _name_workload(kinds: Sequence[JobKind]) -> dict[str, Any]:
    """The quota of a workload is not free while a pod that names it runs. One that no controller made may be adopted by a Job: it waits
    behind a gate, unless its creator may make its Workload, too. No pod that names one takes longer to end than others."""
    may_make_workloads = f"authorizer.group('{GROUP}').resource('workloads').namespace(request.namespace).check('create').allowed()"
    gated = " || ".join(has_gate("object", gate) for gate in (TOPOLOGY_GATE, ADMISSION_GATE))
    known = [_show_key(kind) for kind in _list_controllers(kinds)]
    policy = build_policy(
        "named-workloads",
        [build_pod_rule("CREATE")],
        [
            {
                "expression": f"{build_controlling('object')}.size() > 0 || {gated} || {may_make_workloads}",
                "message": f"a pod without a controller that names a workload waits behind the scheduling gate {TOPOLOGY_GATE}",
                "reason": "Forbidden",
            },
            {
                "expression": f"variables.owners.exists(k, k in {known})"
                f" || object.spec.?terminationGracePeriodSeconds.orValue(0) <= {MAX_GRACE_S}",
                "message": f"a pod of an admitted workload has at most {MAX_GRACE_S} seconds to end: it holds its quota until it is gone",
                "reason": "Invalid",
            },
        ],
        [
            {"name": "names-a-workload", "expression": is_set("object", "annotations", WORKLOAD_ANNOTATION)},
            {"name": "written-by-another", "expression": f"!{IS_TOPOGATE}"},
        ],
    )
    policy["spec"]["variables"] = _list_new_owner_variables()
    return policy


def _list_new_owner_variables() -> list[dict[str, str]]:
    """`OWNER_KIND` of what controls the object now and did not before."""
    added = f"{build_controlling('object')}.filter(o, !{build_controlling('oldObject')}.exists(p, {_SAME_OWNER}))"
    return [{"name": "owners", "expression": f"{added}.map(o, {OWNER_KIND})"}]


def _list_old_owners() -> dict[str, str]:
    """`OWNER_KIND` of what controlled the object before."""
    return {"name": "owners", "expression": f"{build_controlling('oldObject')}.map(o, {OWNER_KIND})"}


def _refuse_resizing() -> dict[str, Any]:
    """A pod keeps the requests that were admitted; the subresource `resize` is the one way to change them."""
    requests = [
        f"{{obj}}.spec.?{part}.orValue([]).map(c, c.?resources.?requests.orValue({{{{}}}}))" for part in ("containers", "initContainers")
    ]
    requests.append("{obj}.spec.?resources")
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/resize"], "operations": ["UPDATE"], "scope": "Namespaced"}
    ours = [has_gate("oldObject", gate) for gate in GATES]
    ours += [is_set("oldObject", "annotations", WORKLOAD_ANNOTATION), is_set("oldObject", "labels", MANAGED)]
    return build_policy(
        "resize",
        [rule],
        [
            {
                "expression": " && ".join(f"{text.format(obj='object')} == {text.format(obj='oldObject')}" for text in requests),
                "message": "a pod that topogate places keeps its requests: quota and place were given for these",
                "reason": "Forbidden",
            }
        ],
        [
            {"name": "is-placed-by-topogate", "expression": " || ".join(ours)},
            {"name": "written-by-another", "expression": f"!{IS_TOPOGATE}"},
        ],
    )


def _refuse_mirror_pods() -> dict[str, Any]:
    """A mirror pod is bound from its creation and is never queued, so only a kubelet may make one: it may write its node's status."""
    is_of_node = (
        "authorizer.group('').resource('nodes').subresource('status').name(object.spec.?nodeName.orValue('')).check('update').allowed()"
    )
    return build_policy(
        "mirror-pods",
        [build_pod_rule("CREATE")],
        [{"expression": is_of_node, "message": f"only the kubelet of its node may make a pod with {STATIC_POD}", "reason": "Forbidden"}],
        [{"name": "is-a-mirror-pod", "expression": is_set("object", "annotations", STATIC_POD)}],
    )


def _refuse_daemon_sets() -> dict[str, Any]:
    """Pods of a DaemonSet are never queued: in a managed namespace its users make none unless an administrator allows it there."""
    allowed = f"namespaceObject.metadata.?annotations[?'{ALLOW_DAEMON_SETS}'].orValue('') == 'true'"
    because = f'DaemonSets are made by administrators, or where the Namespace has the annotation {ALLOW_DAEMON_SETS}: "true"'
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["daemonsets"], "operations": ["CREATE", "UPDATE"]}
    policy = build_policy(
        "daemonsets",
        [rule | {"scope": "Namespaced"}],
        [
            {
                "expression": allowed,
                "message": f"this namespace is managed by topogate, and no quota counts a DaemonSet: {because}",
                "reason": "Forbidden",
            }
        ],
        [
            {"name": "is-new-or-changed", "expression": "oldObject == null || object.spec != oldObject.spec"},
            {"name": "written-by-a-user", "expression": f"!{IS_TOPOGATE}"},
        ],
    )
    policy["spec"]["matchConstraints"]["namespaceSelector"] = IN_MANAGED
    return policy


def _limit_reconciler(user: str) -> dict[str, Any]:
    """The reconciler patches pods of all namespaces. Its token, if stolen, must not put another image into them: the API server itself lets
    an update change these fields, and gates, node selector, tolerations and metadata, which are left to the reconciler. So is affinity, by
    which a group's pods are pinned: the API server takes only a narrower node affinity, and only of a gated pod."""
    kept = [f"spec.?{name}" for name in _KEPT_BY_RECONCILER] + ["metadata.?ownerReferences"]
    policy = build_policy(
        "reconciler",
        [build_pod_rule("UPDATE")],
        [
            {
                "expression": f"object.{path} == oldObject.{path}",
                "message": f"topogate's reconciler does not change {path.replace('?', '')}",
                "reason": "Forbidden",
            }
            for path in kept
        ],
        [{"name": "written-by-the-reconciler", "expression": f"request.userInfo.username == '{user}'"}],
    )
    del policy["spec"]["matchConstraints"]["namespaceSelector"]  # kube-system above all
    return policy


def _build_owned_pod_policy(kinds: Sequence[JobKind]) -> dict[str, Any]:
    """Pods of what a part of a queued object controls are not queued themselves.

    No right shows which client acts for a pod, so in a managed namespace only the one controller that needs it may make
    a pod the controller of an object that creates pods.
    """
    policy = build_policy(
        "owned-by-pods",
        list_rules((*list_parents(kinds), _REPLICA_SET), ["CREATE", "UPDATE"]),
        [
            {
                "expression": f"!('Pod.' in variables.owners) || {_IS_LWS} || {IS_TOPOGATE}",
                "message": "this namespace is managed by topogate: a Pod may be an owner of this object, but not its controller",
                "reason": "Forbidden",
            }
        ],
        [],
    )
    policy["spec"]["variables"] = _list_new_owner_variables()
    policy["spec"]["matchConstraints"]["namespaceSelector"] = IN_MANAGED
    return policy


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
    policy = build_policy(
        f"parts-{kind.plural}",
        list_rules([kind], ["UPDATE", "DELETE"]),
        [
            _require_controller(kinds, "variables.owners", because),
            {
                "expression": f"variables.owners.size() > 0 || object == null || {is_set('object', 'labels', QUEUE_NAME_LABEL)}"
                f" || {is_set('oldObject', 'labels', QUEUE_NAME_LABEL)}"
                f" || !({_IS_IN_MANAGED})",
                "message": f"this {kind.kind} has no owner and no queue in a namespace that is managed by topogate, and is not changed "
                f"or started: give it the label {QUEUE_NAME_LABEL}, or delete it",
                "reason": "Forbidden",
            },
        ],
        [
            {
                "name": "is-changed",
                "expression": f"object == null ? {_is_orphaning(of_job=kind.plural == 'jobs')} : object.spec != oldObject.spec"
                f" || {build_controlling('object')} != {build_controlling('oldObject')} || !{_KEEPS_LABELS} || {_IS_MADE_TO_ORPHAN}",
            },
            {"name": "runs-by-an-admission", "expression": f"has(oldObject.spec) && ({is_admitted})"},
            {"name": "written-by-another", "expression": f"!{IS_TOPOGATE}"},
        ],
    )
    policy["spec"]["variables"] = [_list_old_owners()]
    if any(isinstance(above, ResizedByPart) and above.part.plural == kind.plural for above in kinds):
        policy["spec"]["matchConditions"].append({"name": "is-more-than-resized", "expression": f"!({_is_resized_cluster()})"})
    return policy


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
            f"{_KEEPS_LABELS} && !{_IS_MADE_TO_ORPHAN}",
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
    policy = build_policy(
        "queues",
        list_rules(kinds, ["UPDATE"]),
        [
            {
                "expression": f"{is_set('object', 'labels', QUEUE_NAME_LABEL)} || {IS_TOPOGATE}",
                "message": f"this namespace is managed by topogate: the label {QUEUE_NAME_LABEL} cannot be taken off",
                "reason": "Forbidden",
            }
        ],
        [{"name": "was-queued", "expression": is_set("oldObject", "labels", QUEUE_NAME_LABEL)}],
    )
    policy["spec"]["matchConstraints"]["namespaceSelector"] = IN_MANAGED
    return policy


def _build_gate_policy(kind: JobKind, template: Sequence[str | int]) -> dict[str, Any]:
    """The gate on the template of a queued job keeps its pods from running before it is admitted."""
    way = ".".join(map(str, template))
    old, new = (f"{obj}.{way}" for obj in ("oldObject", "object"))
    return build_policy(
        f"gated-{kind.plural}",
        list_rules([kind], ["UPDATE"]),
        [
            {
                "expression": f"{has_gate(new, TOPOLOGY_GATE)} || {IS_TOPOGATE}",
                "message": f"the scheduling gate {TOPOLOGY_GATE} of a queued {kind.kind} is taken off by topogate",
                "reason": "Forbidden",
            }
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
    known = [_show_key(controller) for controller in _list_controllers(kinds)]
    by_its_controller = f"variables.owners.exists(k, k in {known}) && {_is_controller(kinds, 'variables.owners')}"
    policy = build_policy(
        f"unsuspend-{kind.plural}",
        list_rules([kind], ["UPDATE"]),
        [{"expression": f"{IS_TOPOGATE} || ({by_its_controller})", "message": message, "reason": "Forbidden"}],
        [
            {"name": "is-queued", "expression": is_set("object", "labels", QUEUE_NAME_LABEL)},
            {"name": "was-suspended", "expression": _is_suspended(kind, "oldObject")},
            {"name": "is-unsuspended", "expression": f"!({_is_suspended(kind, 'object')})"},
            *conditions,
        ],
    )
    policy["spec"]["variables"] = [_list_old_owners()]
    return policy


def _build_binding(policy: Mapping[str, Any], action: str = "Deny") -> dict[str, Any]:
    name = policy["metadata"]["name"]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": [action]},
    }
