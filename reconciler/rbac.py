"""What the reconciler asks of the API server, as the chart grants it: `python -m reconciler.rbac --write` writes it there.

It stands beside the code that asks, so that a new request and its right are one change.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.jobs.contract import JobKind, Referring
from core.jobs.kinds.pod_kinds import POD_SETS
from core.jobs.kinds.registry import KINDS
from core.jobs.templated import TemplatedKind
from core.names import PAUSE_CONFIG_MAP
from core.plan.steps import api_resources as r
from core.runtime import generated
from core.runtime.lease import LEASE
from core.runtime.rbac_rules import Right, list_rights, list_rules
from reconciler.observe.related import get_related_resource
from reconciler.visibility.access_reviews import SUBJECT_ACCESS_REVIEWS
from reconciler.visibility.front_proxy import CONFIG_MAP

FOLDER = Path(__file__).parents[1] / "charts" / "topogate" / "files"
_SOURCE = "reconciler.rbac"
_SEEN = ("list", "watch")
_ONLY_SEEN = (
    r.CUSTOM_RESOURCE_DEFINITIONS,
    r.NAMESPACES,
    r.NODES,
    r.DAEMON_SETS,
    r.DEPLOYMENTS,
    r.REPLICA_SETS,
    r.LIMIT_RANGES,
    r.RUNTIME_CLASSES,
    r.VOLUME_CLAIMS,
    r.VOLUMES,
    r.PRIORITY_CLASSES,
    r.WORKLOAD_PRIORITY_CLASSES,
    r.PROVISIONING_REQUEST_CONFIGS,
    r.NODE_TOPOLOGIES,
    r.RESOURCE_SLICES,
    r.RESOURCE_CLAIMS,
    r.RESOURCE_CLAIM_TEMPLATES,
    r.DEVICE_CLASSES,
)
_REPORTED_ON = (r.ADMISSION_CHECKS, r.COHORTS, r.LOCAL_QUEUES, r.CLUSTER_QUEUES, r.TOPOLOGIES, r.POD_GROUPS)
_HELD = (r.CLUSTER_QUEUES, r.RESOURCE_FLAVORS, r.TOPOLOGIES)  # by a finalizer while in use


def list_cluster_rights(kinds: Sequence[JobKind] = KINDS) -> set[Right]:
    """Returns the rights (API group, resource, verb) that the reconciler needs in all namespaces, with those on the job kinds `kinds`. A
    subresource follows its resource after a slash. Those of `list_owner_rights`, which only some clusters ask for, are not among them.
    """
    granted: set[Right] = set()
    for resource in (*_ONLY_SEEN, *map(r.get_resource, POD_SETS)):
        granted |= list_rights(resource, *_SEEN)
    for resource in _REPORTED_ON:
        granted |= list_rights(resource, *_SEEN) | list_rights(resource, "patch", subresource="status")
    for resource in _HELD:
        granted |= list_rights(resource, *_SEEN, "patch")
    for kind in kinds:
        granted |= list_rights(r.get_resource(kind), *_SEEN, "patch")
        if type(kind).build_status_reset is not TemplatedKind.build_status_reset:
            granted |= list_rights(r.get_resource(kind), "patch", subresource="status")
        for related in kind.related if isinstance(kind, Referring) else ():
            granted |= list_rights(get_related_resource(related), *_SEEN)
    granted |= list_rights(r.WORKLOADS, *_SEEN, "get", "create", "patch", "delete") | list_rights(
        r.WORKLOADS, "patch", subresource="status"
    )
    granted |= list_rights(r.PODS, *_SEEN, "get", "patch", "delete") | list_rights(r.PODS, "patch", subresource="status")
    granted |= list_rights(r.POD_GROUPS, "create", "patch")  # of jobs that request one, deleted with them; and the trace that each names
    granted |= list_rights(r.NATIVE_POD_GROUPS, *_SEEN, "create") | list_rights(r.NATIVE_POD_GROUPS, "patch", subresource="status")
    granted |= list_rights(r.NATIVE_WORKLOADS, *_SEEN)
    granted |= list_rights(r.PROVISIONING_REQUESTS, *_SEEN, "create", "delete") | list_rights(r.POD_TEMPLATES, "get", "create", "delete")
    return granted | list_rights(r.EVENTS, "create")


def list_owner_rights(kinds: Sequence[JobKind] = KINDS) -> set[Right]:
    """Returns the rights (API group, resource, verb) that the admission plugin OwnerReferencesPermissionEnforcement requires of a client
    that writes a Workload which blocks the deletion of its owner. They are `update` of the finalizers of jobs, of what owns queued pods,
    and of pods."""
    owners = (*(r.get_resource(kind) for kind in kinds), *(r.get_resource(kind) for kind in POD_SETS), r.PODS)
    return {right for owner in owners for right in list_rights(owner, "update", subresource="finalizers")}


def list_namespace_rights() -> list[dict[str, Any]]:
    """Returns the RBAC rules for the lease, in the namespace of the reconciler. The chart names the namespace: a right to create cannot be
    limited to a name.
    """
    return list_rules(list_rights(LEASE, "get", "update", "create"))


def list_pause_rights() -> list[dict[str, Any]]:
    """Returns the RBAC rules for the ConfigMap by which an administrator pauses, and for no other. Lists and watches name it by a field
    selector.
    """
    return list_rules(list_rights(r.CONFIG_MAPS, *_SEEN), [PAUSE_CONFIG_MAP])


def list_visibility_rights() -> list[dict[str, Any]]:
    """Returns the RBAC rules for the visibility API: the API server is asked whether a user may read."""
    return list_rules(list_rights(SUBJECT_ACCESS_REVIEWS, "create"))


def list_front_proxy_rights() -> list[dict[str, Any]]:
    """Returns the RBAC rules for the visibility API in the namespace kube-system: for the ConfigMap by which the API server's front proxy
    is known, and for no other."""
    return list_rules(list_rights(r.CONFIG_MAPS, *_SEEN), [CONFIG_MAP])


def build_observer_role() -> dict[str, Any]:
    """Returns the ClusterRole for users of `topogate` commands against a live cluster: it lists what the reconciler
    lists, and reads events."""
    listed = {(group, resource, verb) for group, resource, verb in list_cluster_rights() if verb == "list"}
    listed |= list_rights(r.EVENTS, "list") | list_rights(r.CRON_JOBS, "list")
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "topogate-observer"},
        "rules": list_rules(listed),
    }


def render_all() -> dict[str, str]:
    """Returns the content of each generated file, by its path in the chart's files."""
    return {
        "roles/topogate-observer.yaml": generated.render(build_observer_role(), _SOURCE),
        "rights/reconciler.yaml": generated.render(list_rules(list_cluster_rights()), _SOURCE),
        "rights/reconciler-owners.yaml": generated.render(list_rules(list_owner_rights()), _SOURCE),
        "rights/reconciler-namespace.yaml": generated.render(list_namespace_rights(), _SOURCE),
        "rights/reconciler-pause.yaml": generated.render(list_pause_rights(), _SOURCE),
        "rights/reconciler-visibility.yaml": generated.render(list_visibility_rights(), _SOURCE),
        "rights/reconciler-front-proxy.yaml": generated.render(list_front_proxy_rights(), _SOURCE),
    }


if __name__ == "__main__":
    sys.exit(generated.run(_SOURCE, FOLDER, render_all()))
