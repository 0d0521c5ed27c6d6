"""ProvisioningRequestConfig: how an admission check asks the cluster's autoscaler for nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from core.api.kinds.crd import AGE, Crd
from core.api.kinds.marks import SET_LIST, default_on_server, list_map
from core.api.kinds.meta import LABEL_NAME, Int32, KubernetesObject, ObjectName, Wire

MAX_PARAMETERS = 100
MAX_MANAGED_RESOURCES = 100


class ProvisioningRetryStrategy(Wire):
    """What follows a request that failed."""

    backoff_limit_count: Annotated[Int32, Field(ge=0), default_on_server(3)] = 3
    """How often another request is made; the failure after the last one deactivates the workload."""
    backoff_base_seconds: Annotated[Int32, Field(ge=0), default_on_server(60)] = 60
    """How long the workload waits after its first failure; each further one doubles that."""
    backoff_max_seconds: Annotated[Int32, Field(ge=0), default_on_server(1800)] = 1800
    """It never waits longer."""


class ProvisioningNodeSelector(Wire):
    """A node selector with a value that the provider reports."""

    key: Annotated[str, Field(max_length=317, pattern=LABEL_NAME)]
    """The key of the node selector."""
    value_from_provisioning_class_detail: Annotated[str, Field(max_length=32768)]
    """The key in the request's status.provisioningClassDetails that has the value."""


class ProvisioningPodSetUpdates(Wire):
    """What pods get once their nodes are provisioned."""

    node_selector: Annotated[tuple[ProvisioningNodeSelector, ...], Field(max_length=8), list_map("key")] = ()
    """Node selectors, so that pods go to the new nodes."""


class ProvisioningRequestConfigSpec(Wire):
    """What is asked for, and what follows a failure."""

    provisioning_class_name: ObjectName
    """The provisioning class of the requests."""
    parameters: Annotated[Mapping[str, Annotated[str, Field(max_length=255)]], Field(max_length=MAX_PARAMETERS)] = Field(
        default_factory=dict
    )
    """Further parameters of the class."""
    managed_resources: Annotated[tuple[str, ...], Field(max_length=MAX_MANAGED_RESOURCES), SET_LIST] = ()
    """Pod sets that ask for none of these resources are left out of the requests; empty: none is left out."""
    retry_strategy: Annotated[
        ProvisioningRetryStrategy, default_on_server({"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800})
    ] = Field(default_factory=ProvisioningRetryStrategy)
    """What follows a request that failed."""
    pod_set_updates: ProvisioningPodSetUpdates | None = None
    """What pods get once their nodes are provisioned."""
    pod_set_merge_policy: Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"] | None = None
    """Which pod sets are asked for as one: those of one pod template, or those that need nodes of one kind. Absent: none."""


class ProvisioningRequestConfig(KubernetesObject):
    """How an admission check of the controller kueue.x-k8s.io/provisioning-request asks for nodes."""

    crd: ClassVar[Crd] = Crd("provisioningrequestconfigs", "Cluster", ("prc",), columns=(AGE,))

    spec: ProvisioningRequestConfigSpec
    """What is asked for."""
