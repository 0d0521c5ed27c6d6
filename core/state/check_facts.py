"""Admission checks: what performs them, and how far a workload is with them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from core.names import GROUP, MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER
from core.state.facts import is_condition_true

Json = Mapping[str, Any]
PROVISIONING_CONFIG_KIND = "ProvisioningRequestConfig"


@dataclass(frozen=True, slots=True)
class CheckFacts:
    """An AdmissionCheck."""

    name: str
    controller: str
    active: bool
    parameters: str | None = None  # the name of what configures it
    parameters_kind: str | None = None  # and `Kind.group` of that

    @classmethod
    def read(cls, check: Json) -> "CheckFacts":
        """Returns the facts of an AdmissionCheck (JSON). It is active only if its condition Active is True. `parameters_kind` is None
        without parameters."""
        spec = check.get("spec") or {}
        given = spec.get("parameters") or {}
        kind = f"{given.get('kind')}.{given.get('apiGroup')}" if given else None
        active = is_condition_true(check, "Active")
        return cls(check["metadata"]["name"], spec.get("controllerName") or "", active, given.get("name"), kind)

    @property
    def provisioning_config(self) -> str | None:
        """Returns the name of the ProvisioningRequestConfig of Kueue's API group that it refers to, there or not; None where it refers to
        none."""
        return self.parameters if self.parameters_kind == f"{PROVISIONING_CONFIG_KIND}.{GROUP}" else None

    @property
    def delays_topology(self) -> bool:
        """Returns whether the nodes to be used are only there once the check is passed: its controller is that of ProvisioningRequests or
        MultiKueue (KEP-2724, Support for ProvisioningRequests)."""
        return self.controller in (PROVISIONING_CONTROLLER, MULTIKUEUE_CONTROLLER)


@dataclass(frozen=True, slots=True)
class RetryStrategy:
    """What follows a request for nodes that failed. Defaults are those of the API."""

    limit: int = 3
    base_s: int = 60
    max_s: int = 1800

    def compute_delay_s(self, attempt: int) -> int:
        """Returns the seconds to wait after attempt number `attempt`: `base_s` after the first (1), doubled with each, `max_s` at most."""
        # No power of two that large is ever needed, and no workload should have to wait that long.
        return min(self.base_s << min(attempt - 1, 31), self.max_s)


@dataclass(frozen=True, slots=True)
class ProvisioningConfig:
    """A ProvisioningRequestConfig."""

    name: str
    class_name: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    managed_resources: frozenset[str] = frozenset()
    retry: RetryStrategy = RetryStrategy()
    selectors: tuple[tuple[str, str], ...] = ()  # key of a node selector, and the provider's detail that has its value
    merge_policy: str | None = None

    @classmethod
    def read(cls, config: Json) -> "ProvisioningConfig":
        """Returns the facts of a ProvisioningRequestConfig (JSON); what its `retryStrategy` lacks is as in RetryStrategy. Raises KeyError
        where it has no class."""
        spec = config.get("spec") or {}
        retry, usual = spec.get("retryStrategy") or {}, RetryStrategy()
        selectors = (spec.get("podSetUpdates") or {}).get("nodeSelector") or ()
        return cls(
            config["metadata"]["name"],
            spec["provisioningClassName"],
            dict(spec.get("parameters") or {}),
            frozenset(spec.get("managedResources") or ()),
            RetryStrategy(
                int(retry.get("backoffLimitCount", usual.limit)),
                int(retry.get("backoffBaseSeconds", usual.base_s)),
                int(retry.get("backoffMaxSeconds", usual.max_s)),
            ),
            tuple((selector["key"], selector["valueFromProvisioningClassDetail"]) for selector in selectors),
            spec.get("podSetMergePolicy"),
        )
