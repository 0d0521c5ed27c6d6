"""Which gates of Kueue 0.20 are on in a scenario. They are drawn from a stream of their own: all else of a seed is as without them."""

import random
from typing import Any

from core.model.configuration import ResourceRules
from core.model.gates import (
    DEVICES,
    DEVICES_ON_NODES,
    GROUPED_SLICES,
    MAX_NOT_READY,
    NO_GATES,
    PARTIAL_SLICES,
    REJECT_FALSE_UNCONSTRAINED,
    REPLACE_MULTIPLE,
    SPREADING,
    WORKLOAD_PODS_READY,
    ChosenGates,
)
from core.model.node_health_rules import HealthRules
from core.model.own_pods_ready import MOST_READY_S, OwnPodsReady
from core.model.pods_ready_rules import PodsReadyRules
from core.queueing.cycle.second_pass import NodeReplacement
from sim.models.devices import DEVICE_CLASS, DEVICES_RESOURCE

DRAWN = (
    PARTIAL_SLICES,
    GROUPED_SLICES,
    SPREADING,
    REPLACE_MULTIPLE,
    WORKLOAD_PODS_READY,
    MAX_NOT_READY,
    REJECT_FALSE_UNCONSTRAINED,
    DEVICES,
    DEVICES_ON_NODES,
)
"""Gates that a scenario with any may have on. DEVICES on stands for `deviceClassMappings` in the configuration file."""
_SHARE, _EACH = 0.25, 0.6  # of the seeds that have any on, and of these gates in such a seed
_WAITS_S = 60.0  # for which pods are waited for in such a seed


def choose_gates(seed: int) -> ChosenGates:
    """The gates that are on in the scenario of a seed; in most of them none is."""
    chance = random.Random(f"gates of {seed}")
    if chance.random() >= _SHARE:
        return NO_GATES
    found = [name for name in DRAWN if chance.random() < _EACH]
    if DEVICES not in found and DEVICES_ON_NODES in found:
        found.remove(DEVICES_ON_NODES)
    return ChosenGates({name: name in found for name in DRAWN})


def choose_behaviour(seed: int, gates: ChosenGates) -> dict[str, Any]:
    """What a reconciler is given with the gates of a seed, by the names of `Behaviour`; nothing where none are chosen."""
    if not gates.values:
        return {}
    found: dict[str, Any] = {
        "replacement": NodeReplacement.from_gates(gates),
        "node_health": HealthRules().with_gates(gates),
        "own_pods_ready": OwnPodsReady.from_gates(gates, MOST_READY_S),
    }
    if gates.is_on(MAX_NOT_READY) or (gates.is_on(WORKLOAD_PODS_READY) and random.Random(f"pods ready of {seed}").random() < 0.6):
        found["pods_ready"] = PodsReadyRules(_WAITS_S, _WAITS_S, backoff_limit=3, backoff_base_s=5.0, backoff_max_s=60.0)
    if gates.is_on(DEVICES):
        found["resource_rules"] = ResourceRules(device_classes={DEVICE_CLASS: DEVICES_RESOURCE})
    return found
