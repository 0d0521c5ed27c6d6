"""Admission checks: what performs them, and how far a workload is with them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.names import MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER
from core.state.facts import condition_is_true

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CheckFacts:
    """An AdmissionCheck."""

    name: str
    controller: str
    active: bool
    parameters: str | None = None  # the name of what configures it

    @classmethod
    def read(cls, check: Json) -> "CheckFacts":
        spec = check.get("spec") or {}
        parameters = (spec.get("parameters") or {}).get("name")
        return cls(check["metadata"]["name"], spec.get("controllerName") or "", condition_is_true(check, "Active"), parameters)

    @property
    def delays_topology(self) -> bool:
        """Whether the nodes to be used are only there once it is passed (KEP-2724, Support for ProvisioningRequests)."""
        return self.controller in (PROVISIONING_CONTROLLER, MULTIKUEUE_CONTROLLER)
