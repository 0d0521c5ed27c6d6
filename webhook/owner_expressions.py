"""Questions of policies about owners, in CEL: what controls or controlled an object, and whether the writer is its controller."""

from collections.abc import Sequence

from core.jobs.contract import JobKind
from core.jobs.kinds.pod_parents import LeaderWorkerSet
from webhook.policy_expressions import OWNER_KIND, Kind, build_controlling, list_parents

IS_LWS = (  # its controller may label pods after they are made
    f"authorizer.group('{LeaderWorkerSet.group}').resource('{LeaderWorkerSet.plural}').subresource('status')"
    ".namespace(request.namespace).check('update').allowed()"
)
MADE_BY = "metadata.ownerReferences: only the controller of {kind} may make objects that a {kind} controls"
SAME_OWNER = "o.kind == p.kind && o.apiVersion == p.apiVersion && o.uid == p.uid"
_IS_NEW = f"!{build_controlling('oldObject')}.exists(p, {SAME_OWNER})"  # of `o`, which controls the object
# Whether all labels that the object had are as they were.
KEEPS_LABELS = (
    "(!has(oldObject.metadata.labels) || oldObject.metadata.labels.all(k, has(object.metadata.labels)"
    " && k in object.metadata.labels && object.metadata.labels[k] == oldObject.metadata.labels[k]))"
)
IS_MADE_TO_ORPHAN = (
    "(object.metadata.?finalizers.orValue([]).exists(f, f == 'orphan')"
    " && !oldObject.metadata.?finalizers.orValue([]).exists(f, f == 'orphan'))"
)


def is_orphaning(of_job: bool) -> str:
    """Returns CEL for whether a deletion leaves behind what the object controls: by its options, or else by the finalizer that
    `--cascade=orphan` sets. A Job of batch/v1 that is deleted without any of them leaves its pods behind, too."""
    rest = "(oldObject.metadata.?finalizers.orValue([]).exists(f, f == 'foregroundDeletion') ? '' : 'Orphan')" if of_job else "''"
    by_finalizer = f"(oldObject.metadata.?finalizers.orValue([]).exists(f, f == 'orphan') ? 'Orphan' : {rest})"
    policy = "request.options.?propagationPolicy.orValue('')"
    return (
        "(request.options.?orphanDependents.orValue(false) == true || (!request.options.?orphanDependents.hasValue()"
        f" && ({policy} == '' ? {by_finalizer} : {policy}) == 'Orphan'))"
    )


def _list_controllers(kinds: Sequence[JobKind]) -> dict[str, tuple[str, str]]:
    """Group and plural of whatever makes objects that are not queued themselves, by its `OWNER_KIND`."""
    queued: list[Kind] = [*kinds, *list_parents(kinds)]
    known = {f"{kind.kind}.{kind.group}": (kind.group, kind.plural) for kind in queued}
    others = {"DaemonSet.apps": ("apps", "daemonsets"), "ReplicaSet.apps": ("apps", "replicasets")}
    return known | others | {"ReplicationController.": ("", "replicationcontrollers")}


def is_known(kinds: Sequence[JobKind], owners: str, macro: str = "exists") -> str:
    """Returns CEL for whether one of `owners`, a list of `OWNER_KIND`, is of a known kind; with the macro `all` whether all are."""
    return f"{owners}.{macro}(k, k in {[*_list_controllers(kinds)]})"


def is_controller(kinds: Sequence[JobKind], owners: str) -> str:
    """Returns CEL for whether the writer is the controller of each known kind in `owners`, a list of `OWNER_KIND`: it may write the
    status of that kind's objects."""
    return " && ".join(
        f"(!('{kind}' in {owners}) || authorizer.group('{group}').resource('{plural}')"
        ".subresource('status').namespace(request.namespace).check('update').allowed())"
        for kind, (group, plural) in _list_controllers(kinds).items()
    )


def require_controller(kinds: Sequence[JobKind], owners: str, message: str) -> dict[str, str]:
    """Returns the validation that refuses a writer for which `is_controller` is false; `message` names the kind as {kind}."""
    kind = f"' + {owners}[0].split('.')[0] + '"
    return {
        "expression": is_controller(kinds, owners),
        "message": "only the controller of its owner's kind may do this",
        "messageExpression": f"'{message.format(kind=kind)}'",
        "reason": "Forbidden",
    }


def list_new_owner_variables() -> list[dict[str, str]]:
    """Returns the variable `owners`, in a list: `OWNER_KIND` of what controls the object now and did not before."""
    added = f"{build_controlling('object')}.filter(o, {_IS_NEW})"
    return [{"name": "owners", "expression": f"{added}.map(o, {OWNER_KIND})"}]


def has_new_owner() -> str:
    """Returns CEL for whether anything controls the object now and did not before. API servers copy an object, as it was and as it is, once
    for the conditions of a policy, and three times more where these hold."""
    return f"{build_controlling('object')}.exists(o, {_IS_NEW})"


def list_old_owners() -> dict[str, str]:
    """Returns the variable `owners`: `OWNER_KIND` of what controlled the object before."""
    return {"name": "owners", "expression": f"{build_controlling('oldObject')}.map(o, {OWNER_KIND})"}
