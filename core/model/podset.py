"""Pod sets and their topology requests, in the terms of the algorithms."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

from core.model.pod_traits import NO_TRAITS, PodTraits
from core.model.topology_spreading import CountedRule

MOST_SPARES = 64
_EMPTY: Mapping[str, Any] = MappingProxyType({})


class Mode(Enum):
    """How strictly the pods of a pod set must be close together (KEP-2724, User-facing API)."""

    REQUIRED = "required"
    PREFERRED = "preferred"
    UNCONSTRAINED = "unconstrained"
    IMPLIED = "implied"  # no topologyRequest at all: unconstrained at the lowest level, not persisted


@dataclass(frozen=True, slots=True)
class SliceLayer:
    """Every `size` consecutive pods share one domain of `level`."""

    level: str
    size: int


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """A pod set's topologyRequest (API: PodSetTopologyRequest), parsed.

    `level` is the node label asked for, None where the mode needs none; `slices` are coarse to fine. With `partial` the last slice of a
    single layer may have fewer pods (gate TASPartialSlices).
    """

    mode: Mode
    level: str | None = None
    slices: tuple[SliceLayer, ...] = ()
    group: str | None = None
    pod_index_label: str | None = None
    sub_group_index_label: str | None = None
    sub_group_count: int | None = None
    partial: bool = False


IMPLIED = TopologyRequest(Mode.IMPLIED)


@dataclass(frozen=True, slots=True)
class PodSetRequest:
    """One pod set to be placed: `count` equal pods, each taking `requests` and one of `pods`.

    `requests` are canonical amounts of one pod; selector, affinity and tolerations are the
    Kubernetes JSON of the pod template (tolerations already joined with the flavor's).
    `topology` is None where the request names no level at all, which is an error to report.
    """

    name: str
    count: int
    requests: Mapping[str, int]
    topology: TopologyRequest | None = IMPLIED
    node_selector: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    affinity: Mapping[str, Any] | None = None
    tolerations: tuple[Mapping[str, Any], ...] = ()
    traits: PodTraits = NO_TRAITS
    spares: int = 0  # nodes to be kept free beside those that its pods get
    spreading: tuple[CountedRule, ...] = ()  # coarse to fine; only with a required level, and none of them is below it


def read_spares(text: str) -> int | None:
    """Returns how many nodes an annotation asks to be kept free, 0 to `MOST_SPARES`; None for any other text, also for a larger number."""
    return int(text) if re.fullmatch(r"[0-9]{1,4}", text) and int(text) <= MOST_SPARES else None


def read_lends(text: str) -> bool | None:
    """Returns whether an annotation allows that spares are lent (`true` or `false`); None for any other text."""
    return {"true": True, "false": False}.get(text)


def parse_topology_request(wire: Mapping[str, Any] | None) -> TopologyRequest | None:
    """Returns the model of a PodSetTopologyRequest in JSON; None where it is present but names no level. Of its modes the first of
    required, preferred and unconstrained holds; slice layers go before a single slice level.

    An absent request is the implied one. A request with only a slice level is unconstrained from the top of the topology. A request that
    carries only index labels, as the wire contract has it for a pod set without annotations, is implied, too.
    """
    if wire is None:
        return IMPLIED
    layers = wire.get("podsetSliceRequiredTopologyConstraints")
    if layers:
        slices = tuple(SliceLayer(layer["topology"], int(layer["size"])) for layer in layers)
    elif wire.get("podSetSliceRequiredTopology"):
        slices = (SliceLayer(wire["podSetSliceRequiredTopology"], int(wire.get("podSetSliceSize") or 0)),)
    else:
        slices = ()
    if wire.get("required"):
        mode, level = Mode.REQUIRED, wire["required"]
    elif wire.get("preferred"):
        mode, level = Mode.PREFERRED, wire["preferred"]
    elif wire.get("unconstrained") or slices:
        mode, level = Mode.UNCONSTRAINED, None
    elif any(wire.get(key) is not None for key in ("podIndexLabel", "subGroupIndexLabel", "subGroupCount")):
        mode, level = Mode.IMPLIED, None
    else:
        return None
    return TopologyRequest(
        mode,
        level,
        slices,
        group=wire.get("podSetGroupName"),
        pod_index_label=wire.get("podIndexLabel"),
        sub_group_index_label=wire.get("subGroupIndexLabel"),
        sub_group_count=wire.get("subGroupCount"),
    )
