"""What the API server serves: kinds with their schemas, as far as these decide what is stored."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
METADATA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "finalizers": {"type": "array", "x-kubernetes-list-type": "set"},
        "ownerReferences": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"]},
    },
}
"""The schema of the metadata of all objects, as far as lists in it have parts."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind at one version. `schema` is the structural schema of a custom resource, None for what Kubernetes itself serves."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    has_status: bool = False
    has_generation: bool = False
    schema: Mapping[str, Any] | None = None
    keys: Mapping[str, str] = field(default_factory=dict)  # of lists merged by a strategic patch or an apply: field name -> key
    api_version: str = field(init=False)
    """`group/version`, or the version alone."""
    resource: tuple[str, str] = field(init=False)
    """What objects are stored under, whatever the version."""
    is_custom: bool = field(init=False)
    """Whether a CustomResourceDefinition serves it."""
    schema_of_fields: Mapping[str, Any] = field(init=False)
    """The schema by which lists are told apart, that of the metadata included."""

    def __post_init__(self) -> None:
        parts: Mapping[str, Any] = {"built-in": True} if self.schema is None else self.schema
        below = {**(parts.get("properties") or {}), "metadata": METADATA}
        found = {
            "api_version": f"{self.group}/{self.version}" if self.group else self.version,
            "resource": (self.group, self.plural),
            "is_custom": self.schema is not None,
            "schema_of_fields": {**parts, "properties": below},
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)


# Lists of built-in types with a merge key (k8s.io/api, `patchMergeKey`); of all other lists an element is replaced with the list.
POD_LISTS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "topologySpreadConstraints": "topologyKey",
    "hostAliases": "ip",
    "ownerReferences": "uid",
    "conditions": "type",
    "podIPs": "ip",
}
SETS = ("finalizers",)  # lists of texts that are merged


def build_in() -> list[Kind]:
    """What Kubernetes itself serves of what topogate uses."""

    def core(plural: str, kind: str, **more: Any) -> Kind:
        return Kind("", "v1", plural, kind, keys=POD_LISTS, **more)

    def of(group: str, plural: str, kind: str, **more: Any) -> Kind:
        return Kind(group, "v1", plural, kind, keys=POD_LISTS, **more)

    of_cluster = {"namespaced": False, "has_generation": True}
    return [
        core("namespaces", "Namespace", namespaced=False, has_status=True),
        core("nodes", "Node", namespaced=False, has_status=True),
        core("pods", "Pod", has_status=True, has_generation=True),
        core("events", "Event"),
        core("configmaps", "ConfigMap"),
        core("secrets", "Secret"),
        core("podtemplates", "PodTemplate", has_generation=True),
        core("limitranges", "LimitRange"),
        core("persistentvolumeclaims", "PersistentVolumeClaim", has_status=True),
        core("persistentvolumes", "PersistentVolume", namespaced=False, has_status=True),
        of("apps", "daemonsets", "DaemonSet", has_status=True, has_generation=True),
        of("apps", "deployments", "Deployment", has_status=True, has_generation=True),
        of("apps", "replicasets", "ReplicaSet", has_status=True, has_generation=True),
        of("apps", "statefulsets", "StatefulSet", has_status=True, has_generation=True),
        of("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview", namespaced=False),
        of("batch", "jobs", "Job", has_status=True, has_generation=True),
        of("coordination.k8s.io", "leases", "Lease"),
        of("node.k8s.io", "runtimeclasses", "RuntimeClass", namespaced=False),
        of("resource.k8s.io", "deviceclasses", "DeviceClass", **of_cluster),
        of("resource.k8s.io", "resourceclaims", "ResourceClaim", has_status=True, has_generation=True),
        of("resource.k8s.io", "resourceclaimtemplates", "ResourceClaimTemplate", has_generation=True),
        of("resource.k8s.io", "resourceslices", "ResourceSlice", **of_cluster),
        of("scheduling.k8s.io", "priorityclasses", "PriorityClass", namespaced=False, has_generation=True),
        of("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", **of_cluster),
        of("admissionregistration.k8s.io", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", **of_cluster),
        of("apiregistration.k8s.io", "apiservices", "APIService", namespaced=False, has_status=True),
        of("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False, has_status=True),
    ]


def read_definition(definition: Mapping[str, Any]) -> list[Kind]:
    """The kinds that a CustomResourceDefinition serves, the stored version first."""
    spec = definition["spec"]
    names, versions = spec["names"], sorted(spec["versions"], key=lambda version: not version.get("storage"))
    return [
        Kind(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            has_status="status" in (version.get("subresources") or {}),
            has_generation=True,
            schema=version["schema"]["openAPIV3Schema"],
        )
        for version in versions
        if version.get("served")
    ]


def read_definitions(definitions: Iterable[Mapping[str, Any]]) -> list[Kind]:
    """The kinds of several of them."""
    return [kind for definition in definitions for kind in read_definition(definition)]
