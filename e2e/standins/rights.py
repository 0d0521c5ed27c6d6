"""As whom a stand-in acts: with the rights of the operator whose place it takes, by that operator's own manifests."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from e2e.accounts import issue_token
from e2e.api import APPLY_PATCH, Api
from e2e.binaries import find_kubernetes_minor
from e2e.manifests import get_path

RIGHTS = Path(__file__).with_name("rights.json")  # written by e2e.operators.rights
NAMESPACE = "stand-ins"
# What an operator asks for on Kubernetes before 1.36 and its manifests do not grant: docs/kinds.md says how a user grants it.
MORE_BEFORE_1_36 = {"MPIJob": [{"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["update"]}]}
_RBAC = "rbac.authorization.k8s.io"


@cache
def read_rights() -> dict[str, list[dict[str, Any]]]:
    """Rules of RBAC by kind of job."""
    read: dict[str, list[dict[str, Any]]] = json.loads(RIGHTS.read_text())
    return read


def list_more_rights(kind: str) -> list[dict[str, Any]]:
    """Rules that the operator of a kind needs besides, on the Kubernetes that is used."""
    return MORE_BEFORE_1_36.get(kind, []) if find_kubernetes_minor() in ("1.34", "1.35") else []


def act_as_operator(api: Api, kind: str) -> Api | None:
    """The same API server for the operator of a kind; None of a kind of which the operator's manifests are not known."""
    rules = read_rights().get(kind)
    if rules is None:
        return None
    account, rules = kind.lower(), [*rules, *list_more_rights(kind)]
    role: dict[str, Any] = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": f"stand-in-{account}"}, "rules": rules}
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": f"stand-in-{account}"}
    subjects = [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
    metadata = {"name": f"stand-in-{account}"}
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": NAMESPACE}},
        role,
        {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": metadata, "roleRef": reference, "subjects": subjects},
    ]
    for obj in objects:
        api.patch(f"{get_path(obj)}/{obj['metadata']['name']}?fieldManager=e2e&force=true", obj, APPLY_PATCH)
    return api.for_token(issue_token(api, NAMESPACE, account))
