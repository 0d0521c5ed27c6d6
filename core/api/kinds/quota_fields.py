"""Quota as ClusterQueue and Cohort declare it, and its usage as their status reports it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from core.api.kinds.marks import ATOMIC_LIST, Mark, add_rule, default_on_server, list_map
from core.api.kinds.meta import DNS_SUBDOMAIN, Int64, ObjectName, Quantity, ResourceList, Time, Wire

ResourceName = Annotated[str, Field(max_length=316)]
CheckName = Annotated[str, Field(min_length=1, max_length=316)]
CohortName = Annotated[str, Field(max_length=253, pattern=DNS_SUBDOMAIN)]
StopPolicy = Literal["None", "Hold", "HoldAndDrain"]


class ResourceQuota(Wire):
    """The quota of one resource in one flavor."""

    name: ResourceName
    """The resource, such as cpu or nvidia.com/gpu."""
    nominal_quota: Quantity
    """How much may be in use at a time without borrowing. Not negative."""
    borrowing_limit: Quantity | None = None
    """How much more may be borrowed from the cohort; unlimited if absent. Only with a cohort."""
    lending_limit: Quantity | None = None
    """How much of the unused quota others may borrow; all of it if absent. Only with a cohort."""


class FlavorQuotas(Wire):
    """The quotas of one flavor."""

    name: ObjectName
    """The ResourceFlavor."""
    resources: Annotated[tuple[ResourceQuota, ...], Field(min_length=1, max_length=64), list_map("name")]
    """One quota per covered resource, in the order of coveredResources."""


class ResourceGroupFields(Wire):
    """Resources that are assigned together from one flavor of a list."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule(
            "self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
            "each flavor must list a quota for each of the coveredResources",
        ),
    )

    covered_resources: Annotated[tuple[ResourceName, ...], Field(min_length=1, max_length=64), ATOMIC_LIST]
    """The resources of this group."""
    flavors: Annotated[tuple[FlavorQuotas, ...], Field(min_length=1, max_length=64), list_map("name")]
    """The flavors in the order in which they are tried."""


ResourceGroups = Annotated[tuple[ResourceGroupFields, ...], Field(max_length=16), ATOMIC_LIST]


class FairSharingFields(Wire):
    """How a ClusterQueue, LocalQueue or Cohort takes part in fair sharing."""

    weight: Annotated[Quantity, default_on_server(1)] = "1"
    """Its advantage over others; zero means it always yields."""


class AdmissionFairSharingStatus(Wire):
    """The usage of the past, decayed over time."""

    consumed_resources: ResourceList
    """How much of each resource was used, by now."""
    last_update: Time
    """When it was computed."""


class FairSharingStatus(Wire):
    """The share by which fair sharing orders."""

    weighted_share: Int64
    """The highest ratio of borrowed to lendable resources, divided by the weight."""
    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None
    """The usage of the past."""


class ResourceUsage(Wire):
    """How much of a resource is in use."""

    name: ResourceName
    """The resource."""
    total: Quantity | None = None
    """All that is in use, borrowed included."""
    borrowed: Quantity | None = None
    """What is borrowed from the cohort."""


class FlavorUsage(Wire):
    """How much of a flavor is in use."""

    name: ObjectName
    """The flavor."""
    resources: Annotated[tuple[ResourceUsage, ...], Field(max_length=64), list_map("name")]
    """The usage of each resource."""


FlavorUsages = Annotated[tuple[FlavorUsage, ...], Field(max_length=64), list_map("name")]
