"""Devices that pods claim (DRA), as amounts beside those of other resources: each DeviceClass has a name of its own.

No container can request these names, since they have spaces. `resources.deviceClassMappings` of the configuration says as which resource
quota counts a class; nodes are compared by class.
"""

from collections.abc import Mapping

from core.model.pod_resources import Resources, add

_OF_CLASS = "devices of class "
UNCOUNTED_DEVICES = "devices that no quota counts"
"""As the name of an amount: what a pod claims that cannot be counted. No pod is admitted with it."""
UNBOUNDED_DEVICES = 2**31
"""As what a node offers: at least so many of a class where it is not bounded by that. No job may have as many."""


def name_devices(device_class: str) -> str:
    """Returns the name under which the devices of a DeviceClass are counted."""
    return f"{_OF_CLASS}{device_class}"


def is_devices(resource: str) -> bool:
    """Returns whether an amount is one of claimed devices, by its name."""
    return resource.startswith(_OF_CLASS) or resource == UNCOUNTED_DEVICES


def convert_devices(amounts: Resources, classes: Mapping[str, str]) -> dict[str, int]:
    """Returns what the claimed devices among `amounts` count as for quota, by resource; a new dict. `classes`: the resource of each
    DeviceClass. Devices of another class, and other resources, are left out."""
    found: dict[str, int] = {}
    for name, amount in amounts.items():
        resource = classes.get(name.removeprefix(_OF_CLASS)) if name.startswith(_OF_CLASS) else None
        if resource is not None:
            add(found, {resource: amount})
    return found


def describe_devices(more: Resources) -> str:
    """Returns a text about amounts of claimed devices that are more than was admitted, in their order."""
    return ", ".join(name if name == UNCOUNTED_DEVICES else f"{name}: {amount} more" for name, amount in more.items())
