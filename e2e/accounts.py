"""The service accounts by which topogate's processes run beside a control plane: with the rights that the chart grants, and no others.

So whatever a scene has them do shows whether it is granted, and the API server's audit log whether what is granted is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from e2e.api import APPLY_PATCH, Api
from e2e.manifests import get_path as path_of
from e2e.pki import write_kubeconfig

RIGHTS = Path(__file__).parents[1] / "charts" / "topogate" / "files" / "rights"
PARTS = ("webhook", "reconciler")
TOKEN_LIFE_S = 365 * 24 * 3600  # a cluster may be left running
Obj = dict[str, Any]


def get_account_name(part: str) -> str:
    """The name of a part's service account, and of its roles."""
    return f"topogate-{part}"


def get_user_name(part: str, namespace: str) -> str:
    """As whom the API server knows it."""
    return f"system:serviceaccount:{namespace}:{get_account_name(part)}"


def read_rules(name: str) -> list[Obj]:
    """Rules of RBAC as the chart has them."""
    rules: list[Obj] = yaml.safe_load((RIGHTS / f"{name}.yaml").read_text())
    return rules


def install_accounts(api: Api, namespace: str) -> None:
    """Applies accounts, roles and bindings."""
    for obj in _build_objects(namespace):
        api.patch(f"{path_of(obj)}/{obj['metadata']['name']}?fieldManager=e2e&force=true", obj, APPLY_PATCH)


def delete_accounts(api: Api, namespace: str) -> None:
    for obj in _build_objects(namespace):
        api.delete(f"{path_of(obj)}/{obj['metadata']['name']}")


def write_kubeconfig_of(part: str, api: Api, namespace: str, to: Path, server: str, ca_file: Path) -> Path:
    """A kubeconfig with a new token of that part's account."""
    return write_kubeconfig(to, server, ca_file, issue_token(api, namespace, get_account_name(part)))


def issue_token(api: Api, namespace: str, account: str) -> str:
    """A new token of a service account."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": TOKEN_LIFE_S}}
    answer = api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", body)
    return str(answer["status"]["token"])


def _build_objects(namespace: str) -> Iterator[Obj]:
    for part in PARTS:
        more = ("reconciler-owners", "reconciler-visibility") if part == "reconciler" else ()
        rules = read_rules(part) + [rule for name in more for rule in read_rules(name)]
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": get_account_name(part), "namespace": namespace}}
        yield from _build_role_with_binding(part, rules, namespace, None)
    own = read_rules("reconciler-namespace") + read_rules("reconciler-pause")
    yield from _build_role_with_binding("reconciler", own, namespace, namespace)
    yield from _build_role_with_binding("reconciler", read_rules("reconciler-front-proxy"), namespace, "kube-system")


def _build_role_with_binding(part: str, rules: list[Obj], account_namespace: str, only_in: str | None) -> Iterator[Obj]:
    """A role and its binding: in one namespace, or with None in all."""
    kind = "ClusterRole" if only_in is None else "Role"
    metadata = {"name": get_account_name(part), **({} if only_in is None else {"namespace": only_in})}
    group = "rbac.authorization.k8s.io"
    yield {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "rules": rules}
    yield {
        "apiVersion": f"{group}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": kind, "name": get_account_name(part)},
        "subjects": [{"kind": "ServiceAccount", "name": get_account_name(part), "namespace": account_namespace}],
    }
