"""The generated files of the chart for the webhook: `python -m webhook.chart --write` writes them.

Webhook configurations, policies and rights come from the functions that everything else uses; the chart only sets the
address of the webhook and lays an administrator's values over them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from certs.rotation import KINDS as CONFIGURATIONS
from certs.rotation import SECRETS
from core.jobs.contract import JobKind, Referring
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.registry import KINDS
from core.plan.steps import api_resources as r
from core.resource import Resource
from core.runtime import generated
from core.runtime.rbac_rules import Right, list_rights, list_rules
from webhook.known_names import WATCHED
from webhook.policies import list_policies
from webhook.registration import build_configurations

FOLDER = Path(__file__).parents[1] / "charts" / "topogate" / "files"
_SOURCE = "webhook.chart"
SERVICE: dict[str, Any] = {"service": {"namespace": "topogate-system", "name": "topogate-webhook", "port": 443}}


def list_cluster_rights(kinds: Sequence[JobKind] = KINDS) -> set[Right]:
    """Returns the rights (API group, resource, verb) with which the webhook reads. They are on the default queue, the owners of a new
    object, and the objects that it refers to; and on all queues, flavors and topologies, which it watches for their names."""
    granted = list_rights(r.LOCAL_QUEUES, "get") | list_rights(r.REPLICA_SETS, "get")
    for watched in WATCHED:
        granted |= list_rights(watched, "list", "watch")
    for kind in (*kinds, *list_pod_kinds(kinds)):
        granted |= list_rights(Resource(kind.group, kind.version, kind.plural, kind.kind), "get")
        for related in kind.related if isinstance(kind, Referring) else ():
            granted |= {(related.group, related.plural, "get")}
    return granted


def list_certificate_rights() -> dict[str, list[dict[str, Any]]]:
    """Returns the further rights that `--cert-mode own` needs, as RBAC rules by file name without its ending. The chart names the objects:
    a right on all Secrets, or on all webhooks of the cluster, must not be granted. A right to create cannot be limited to a name, so that
    it is a rule of its own."""
    files = {f"webhook-certificates-{kind}": list_rules(list_rights(resource, "get", "patch")) for kind, resource in CONFIGURATIONS.items()}
    return {
        **files,
        "webhook-certificates-secret": list_rules(list_rights(SECRETS, "get", "update")) + list_rules(list_rights(SECRETS, "create")),
    }


def render_all(kinds: Sequence[JobKind] = KINDS) -> dict[str, str]:
    """Returns the content of each generated file, by its path in the chart's files. Each policy is in a file with its binding."""
    mutating, validating = build_configurations("", SERVICE, kinds)
    wanted: dict[str, Any] = {"webhooks/mutating.yaml": mutating, "webhooks/validating.yaml": validating}
    made = list_policies(kinds)
    for policy, binding in zip(made[::2], made[1::2], strict=True):
        wanted[f"policies/{policy['metadata']['name']}.yaml"] = [policy, binding]
    wanted["rights/webhook.yaml"] = list_rules(list_cluster_rights(kinds))
    wanted |= {f"rights/{name}.yaml": granted for name, granted in list_certificate_rights().items()}
    return {name: generated.render(content, _SOURCE) for name, content in wanted.items()}


if __name__ == "__main__":
    sys.exit(generated.run(_SOURCE, FOLDER, render_all()))
