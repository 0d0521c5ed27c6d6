"""The policies about pods: their gates, marks and owners, what they may name, and what the reconciler itself may change of them."""

from collections.abc import Sequence
from typing import Any

from core.jobs.contract import JobKind
from core.jobs.kinds.pod import STATIC_POD
from core.jobs.pod_rules import MAX_GRACE_S
from core.names import (
    ADMISSION_GATE,
    GROUP,
    LWS_GROUP_INDEX_LABEL,
    LWS_NAME_LABEL,
    LWS_WORKER_INDEX_LABEL,
    MANAGED,
    PODSET_LABEL,
    SLICE_NAME,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)
from webhook.limits import GATES, build_evictions, build_grace, build_limits
from webhook.owner_expressions import (
    IS_LWS,
    IS_MADE_TO_ORPHAN,
    KEEPS_LABELS,
    MADE_BY,
    SAME_OWNER,
    is_controller,
    is_known,
    is_orphaning,
    list_new_owner_variables,
    list_old_owners,
    require_controller,
)
from webhook.policy_expressions import (
    IS_TOPOGATE,
    OWNER_KIND,
    build_controlling,
    build_denial,
    build_pod_rule,
    build_policy,
    build_value,
    has_gate,
    is_set,
)

_KEPT_BY_RECONCILER = "containers initContainers ephemeralContainers activeDeadlineSeconds resources terminationGracePeriodSeconds"


def list_pod_policies(kinds: Sequence[JobKind], reconciler: str) -> list[dict[str, Any]]:
    """Returns the policies about pods of all kinds, without bindings. `reconciler`: the name of its account."""
    made = [_build_pod_policy(kinds), _build_dependents_policy(kinds), _name_workload(kinds), _refuse_mirror_pods()]
    return [*made, _limit_reconciler(reconciler), build_limits(f"!{IS_TOPOGATE}"), build_grace(), build_evictions(), _refuse_resizing()]


def _build_pod_policy(kinds: Sequence[JobKind]) -> dict[str, Any]:
    """Gates of pods, and the marks that name their workload.

    One policy with one question before it: the API server makes a copy of both objects for each policy's questions,
    again for its rules and twice for its messages, and of the pods of large jobs topogate writes each at least once.
    """
    old, new = (f"(has({obj}.metadata.ownerReferences) ? {obj}.metadata.ownerReferences : [])" for obj in ("oldObject", "object"))
    return build_policy(
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
        [
            *list_new_owner_variables(),
            list_old_owners() | {"name": "before"},
            {
                "name": "left",
                "expression": f"{is_set('oldObject', 'annotations', WORKLOAD_ANNOTATION)} ? {build_controlling('oldObject')}"
                f".filter(o, !{build_controlling('object')}.exists(p, {SAME_OWNER})).map(o, {OWNER_KIND}) : []",
            },
        ],
    )


def _build_mark_policy() -> list[dict[str, Any]]:
    """Gates, labels and annotations of pods that topogate has set."""
    validations = [
        build_denial(
            f"!{has_gate('oldObject', gate)} || {has_gate('object', gate)}",
            f"the scheduling gate {gate} is taken off by topogate once the pod has its place",
        )
        for gate in GATES
    ]
    marks = (("annotations", WORKLOAD_ANNOTATION), ("annotations", SLICE_NAME), ("labels", PODSET_LABEL), ("labels", MANAGED))
    for part, name in marks:
        kept = f"{build_value('oldObject', part, name)} == {build_value('object', part, name)}"
        validations.append(build_denial(kept, f"{name} names the owner of this pod and cannot be changed"))
    for name in (LWS_NAME_LABEL, LWS_GROUP_INDEX_LABEL, LWS_WORKER_INDEX_LABEL):
        kept = f"{build_value('oldObject', 'labels', name)} == {build_value('object', 'labels', name)} || {IS_LWS}"
        validations.append(build_denial(kept, f"{name} says which workload this pod is of and cannot be changed"))
    return validations


def _build_kept_owner_policy(kinds: Sequence[JobKind]) -> list[dict[str, Any]]:
    """The owner of a pod of an admitted workload, and the labels by which that finds it."""
    was_known = is_known(kinds, "variables.before")
    return [
        require_controller(kinds, "variables.owners", MADE_BY),
        require_controller(
            kinds, "variables.left", "only the controller of {kind} may release a pod that was admitted as a part of a {kind}"
        ),
        build_denial(is_known(kinds, "variables.left", "all"), "a pod of an admitted workload keeps its controlling owner"),
        # A controller finds its pods by labels, and makes others for those that it does not find.
        build_denial(
            f"!{is_set('oldObject', 'annotations', WORKLOAD_ANNOTATION)}"
            f" || ({is_set('oldObject', 'labels', MANAGED)} && !{was_known})"
            f" || {KEEPS_LABELS} || ({was_known} && {is_controller(kinds, 'variables.before')})",
            "metadata.labels: the labels of a pod of an admitted workload cannot change or go; others can be added",
        ),
        build_denial(f"!{IS_MADE_TO_ORPHAN}", "a pod of an admitted workload cannot have the finalizer orphan"),
    ]


def _build_dependents_policy(kinds: Sequence[JobKind]) -> dict[str, Any]:
    """A pod that is made again takes along the pods that it controls, as the driver of a SparkApplication does its executors."""
    return build_policy(
        "orphans",
        [build_pod_rule("DELETE")],
        [require_controller(kinds, "variables.owners", "only the controller of {kind} may delete this pod with the policy Orphan")],
        [
            {"name": "leaves-dependents", "expression": is_orphaning(of_job=False)},
            {"name": "is-of-a-workload", "expression": is_set("oldObject", "annotations", WORKLOAD_ANNOTATION)},
            {"name": "deleted-by-another", "expression": f"!{IS_TOPOGATE}"},
        ],
        [list_old_owners()],
    )


def _name_workload(kinds: Sequence[JobKind]) -> dict[str, Any]:
    """The quota of a workload is not free while a pod that names it runs. One that no controller made may be adopted by a Job: it waits
    behind a gate, unless its creator may make its Workload, too. No pod that names one takes longer to end than others."""
    may_make_workloads = f"authorizer.group('{GROUP}').resource('workloads').namespace(request.namespace).check('create').allowed()"
    gated = " || ".join(has_gate("object", gate) for gate in (TOPOLOGY_GATE, ADMISSION_GATE))
    return build_policy(
        "named-workloads",
        [build_pod_rule("CREATE")],
        [
            build_denial(
                f"{build_controlling('object')}.size() > 0 || {gated} || {may_make_workloads}",
                f"a pod without a controller that names a workload waits behind the scheduling gate {TOPOLOGY_GATE}",
            ),
            {
                "expression": f"{is_known(kinds, 'variables.owners')}"
                f" || object.spec.?terminationGracePeriodSeconds.orValue(0) <= {MAX_GRACE_S}",
                "message": f"a pod of an admitted workload has at most {MAX_GRACE_S} seconds to end: it holds its quota until it is gone",
                "reason": "Invalid",
            },
        ],
        [
            {"name": "names-a-workload", "expression": is_set("object", "annotations", WORKLOAD_ANNOTATION)},
            {"name": "written-by-another", "expression": f"!{IS_TOPOGATE}"},
        ],
        list_new_owner_variables(),
    )


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
            build_denial(
                " && ".join(f"{text.format(obj='object')} == {text.format(obj='oldObject')}" for text in requests),
                "a pod that topogate places keeps its requests: quota and place were given for these",
            )
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
        [build_denial(is_of_node, f"only the kubelet of its node may make a pod with {STATIC_POD}")],
        [{"name": "is-a-mirror-pod", "expression": is_set("object", "annotations", STATIC_POD)}],
    )


def _limit_reconciler(user: str) -> dict[str, Any]:
    """The reconciler patches pods of all namespaces. Its token, if stolen, must not put another image into them: the API server itself lets
    an update change these fields, and gates, node selector, tolerations and metadata, which are left to the reconciler. So is affinity, by
    which a group's pods are pinned: the API server takes only a narrower node affinity, and only of a gated pod."""
    kept = [f"spec.?{name}" for name in _KEPT_BY_RECONCILER.split()] + ["metadata.?ownerReferences"]
    policy = build_policy(
        "reconciler",
        [build_pod_rule("UPDATE")],
        [
            build_denial(f"object.{path} == oldObject.{path}", f"topogate's reconciler does not change {path.replace('?', '')}")
            for path in kept
        ],
        [{"name": "written-by-the-reconciler", "expression": f"request.userInfo.username == '{user}'"}],
    )
    del policy["spec"]["matchConstraints"]["namespaceSelector"]  # kube-system above all
    return policy
