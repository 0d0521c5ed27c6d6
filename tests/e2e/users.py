"""Users of a namespace by their roles, as service accounts, and what the API server refuses them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from e2e.api import Api, ApiError, wait_for
from sim.apiserver.webhooks import USER
from sim.scenes.cluster import SceneApi

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}"


def create_user(api: Api, namespace: str, name: str = "user", role: str = "edit") -> Api:
    if isinstance(api, SceneApi):
        return api.for_user(USER)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    if api.find(f"{path}/{name}") is None:
        api.create(path, account)
        rules = [
            {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["*"]},
            {"apiGroups": ["ray.io"], "resources": ["rayclusters", "rayjobs"], "verbs": ["*"]},
        ]
        own = f"{name}-jobs"
        api.create(f"{RBAC.format(namespace)}/roles", {"metadata": {"name": own}, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        for kind, bound_role in (("ClusterRole", role), ("Role", own)):
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": bound_role}
            binding = {"metadata": {"name": f"{name}-{bound_role}"}, "subjects": [subject], "roleRef": reference}
            api.create(f"{RBAC.format(namespace)}/rolebindings", binding)
    token = api.create(f"{path}/{name}/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    user = api.for_token(str(token["status"]["token"]))
    for verb, group, resource in (("create", "jobset.x-k8s.io", "jobsets"), ("list", "kueue.x-k8s.io", "workloads")):
        wait_for(f"{name}'s rights on {resource}", partial(may, user, verb, group, resource, namespace))
    return user


def may(user: Api, verb: str, group: str, resource: str, namespace: str = "") -> bool:
    """The API server's authorizer takes up bindings, and the controller manager rules of aggregated roles, a moment later."""
    asked = {"verb": verb, "group": group, **_split(resource), "namespace": namespace}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}
    answer = user.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


@contextmanager
def bound_everywhere(api: Api, namespace: str, role: str, name: str = "user") -> Iterator[None]:
    """The service account `name` of `namespace` has the ClusterRole in all of the cluster for so long."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    path, binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", f"{namespace}-{role}"
    api.create(path, {"metadata": {"name": binding}, "subjects": [subject], "roleRef": reference})
    try:
        yield
    finally:
        api.delete(f"{path}/{binding}")


def assert_refused(status: int, told: str, act: Any) -> None:
    with pytest.raises(ApiError) as error:
        act()
    assert error.value.status == status, error.value
    assert told in str(error.value)


def _split(resource: str) -> dict[str, str]:
    name, _, subresource = resource.partition("/")
    return {"resource": name} | ({"subresource": subresource} if subresource else {})
