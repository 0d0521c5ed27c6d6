"""What the API server serves: kinds with their schemas, as far as these decide what is stored."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


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

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> tuple[str, str]:
        """What objects are stored under, whatever the version."""
        return self.group, self.plural

    @property
    def is_custom(self) -> bool:
        """Whether a CustomResourceDefinition serves it."""
        return self.schema is not None


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
