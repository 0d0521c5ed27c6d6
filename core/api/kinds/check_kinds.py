"""AdmissionCheck and WorkloadPriorityClass: the two small kinds that others refer to by name."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from core.api.kinds.crd import Crd, PrinterColumn
from core.api.kinds.marks import IMMUTABLE
from core.api.kinds.meta import DNS_LABEL, Conditions, Int32, KubernetesObject, ObjectName, Wire


class AdmissionCheckParameters(Wire):
    """A reference to a further object that configures the check."""

    api_group: ObjectName
    """The API group of the object."""
    kind: Annotated[str, Field(max_length=63, pattern=r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$")]
    """The kind of the object."""
    name: Annotated[str, Field(max_length=63, pattern=DNS_LABEL)]
    """The name of the object."""


class AdmissionCheckSpec(Wire):
    """The controller that performs the check, and its parameters."""

    controller_name: Annotated[str, Field(min_length=1, max_length=253), IMMUTABLE]
    """The controller that performs the check."""
    parameters: AdmissionCheckParameters | None = None
    """Configuration for the controller."""


class AdmissionCheckStatus(Wire):
    """Whether the check can be performed."""

    conditions: Conditions = ()
    """Active says that the controller is ready to perform the check."""


class AdmissionCheck(KubernetesObject):
    """A condition, judged by some controller, that workloads of a ClusterQueue must meet after they have quota."""

    crd: ClassVar[Crd] = Crd("admissionchecks", "Cluster", ("ac",), has_status=True)

    spec: AdmissionCheckSpec
    """The controller that performs the check."""
    status: AdmissionCheckStatus = Field(default_factory=AdmissionCheckStatus)
    """Whether it can be performed."""


class WorkloadPriorityClass(KubernetesObject):
    """A named priority for workloads that does not touch the priority of their pods."""

    crd: ClassVar[Crd] = Crd(
        "workloadpriorityclasses",
        "Cluster",
        ("wpc",),
        columns=(PrinterColumn("Value", ".value", "integer", "The priority that workloads of this class get"),),
    )

    value: Int32
    """The priority. A change does not reach workloads that exist."""
    description: Annotated[str, Field(max_length=2048)] = ""
    """When to use this class."""
