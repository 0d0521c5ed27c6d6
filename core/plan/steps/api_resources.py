"""The API resources that the reconciler watches and writes."""

from collections.abc import Iterable, Mapping
from typing import Any

from core.jobs.contract import JobKind, Reviewed
from core.jobs.kinds.pod_parents import PodParent
from core.names import AUTOSCALING_GROUP, GROUP, OWN_GROUP, OWN_VERSION, VERSION
from core.resource import Resource

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")  # only read: RBAC needs get, list and watch, unless reservation is off
# Between pods and what was queued for them; only read, as these.
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")  # only listed by `topogate explain`: their Jobs are what is queued
POD_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
EVENTS = Resource("", "v1", "events", "Event")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
TOPOLOGIES = Resource(GROUP, VERSION, "topologies", "Topology", namespaced=False)
RESOURCE_FLAVORS = Resource(GROUP, VERSION, "resourceflavors", "ResourceFlavor", namespaced=False)
CLUSTER_QUEUES = Resource(GROUP, VERSION, "clusterqueues", "ClusterQueue", namespaced=False)
ADMISSION_CHECKS = Resource(GROUP, VERSION, "admissionchecks", "AdmissionCheck", namespaced=False)
PROVISIONING_REQUEST_CONFIGS = Resource(GROUP, VERSION, "provisioningrequestconfigs", "ProvisioningRequestConfig", namespaced=False)
PROVISIONING_REQUESTS = Resource(AUTOSCALING_GROUP, "v1", "provisioningrequests", "ProvisioningRequest")  # where it is installed
COHORTS = Resource(GROUP, VERSION, "cohorts", "Cohort", namespaced=False)
LOCAL_QUEUES = Resource(GROUP, VERSION, "localqueues", "LocalQueue")
POD_GROUPS = Resource(OWN_GROUP, OWN_VERSION, "podgroups", "PodGroup")
NATIVE_POD_GROUPS = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")  # kube-scheduler's own, where they are served
NATIVE_WORKLOADS = Resource("scheduling.k8s.io", "v1alpha2", "workloads", "Workload")  # with the templates from which PodGroups are created
NODE_TOPOLOGIES = Resource(OWN_GROUP, OWN_VERSION, "nodetopologies", "NodeTopology", namespaced=False)
WORKLOADS = Resource(GROUP, VERSION, "workloads", "Workload")
WORKLOAD_PRIORITY_CLASSES = Resource(GROUP, VERSION, "workloadpriorityclasses", "WorkloadPriorityClass", namespaced=False)

# Devices (DRA), which Kubernetes serves unless it is too old or they are disabled.
RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_CLAIM_TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)


CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)


def get_resource(kind: Reviewed) -> Resource:
    """Returns the API resource of the objects of a kind: group, version, plural and kind; it is namespaced."""
    return Resource(kind.group, kind.version, kind.plural, kind.kind)


def build_key(kind: JobKind) -> str:
    """Returns kind and group of a kind of job, which distinguish it from all others whatever its version: `Job.batch`."""
    return f"{kind.kind}.{kind.group}"


def show_kind(resource: Resource) -> str:
    """Returns kind and group of a resource, as `build_key` writes them: `Job.batch`."""
    return f"{resource.kind}.{resource.group}"


def build_owner_key(owner: Mapping[str, Any]) -> str:
    """Returns kind and group of the owner in an owner reference (JSON), as `build_key` writes them: `Job.batch`, `Pod.`
    of the core group."""
    return f"{owner['kind']}.{owner['apiVersion'].rpartition('/')[0]}"


def list_owners(kinds: Iterable[JobKind | PodParent]) -> frozenset[str]:
    """Returns the kinds, each as `Kind.group`, of all that makes pods of jobs, or jobs, and that no user can name as an owner.

    The policy `topogate-owners` guards them. Pods, which any user can name, are no such kind.
    """
    others = (DEPLOYMENTS, REPLICA_SETS, DAEMON_SETS)
    return frozenset(f"{one.kind}.{one.group}" for one in (*kinds, *others))
