"""Values of a configuration file that stand alone: durations, quantities, names and feature gates."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from core.api.files.mistakes import Mistake, build_path, find_nearest, format_choice, format_value
from core.api.files.strict import match_pattern, refuse, refuse_inside
from core.api.kinds.meta import DNS_LABEL, DNS_SUBDOMAIN, LABEL_NAME
from core.model.configuration import Address
from core.model.duration import InvalidDuration, parse_duration
from core.model.gates import GATES, BadGates, read_gates
from core.model.kueue_gates import FORMER_GATES, OTHER_GATES
from core.model.quantity import LARGEST, parse_quantity

# The order is that of Kueue's documentation.
FRAMEWORKS = (
    "batch/job",
    "kubeflow.org/mpijob",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "ray.io/raycluster",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "kubeflow.org/jaxjob",
    "trainer.kubeflow.org/trainjob",
    "workload.codeflare.dev/appwrapper",
    "sparkoperator.k8s.io/sparkapplication",
    "pod",
    "deployment",
    "statefulset",
    "leaderworkerset.x-k8s.io/leaderworkerset",
)
_TOO_MUCH = LARGEST  # where parse_quantity cuts


def _parse_seconds(value: object) -> float:
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except InvalidDuration:
            pass
    raise refuse('a duration such as "5m", "1h30m" or "300ms" is expected')


def _parse_duration_from_0(value: object) -> float:
    if (seconds := _parse_seconds(value)) < 0:
        raise refuse("0s or more is expected")
    return seconds


def _parse_positive_duration(value: object) -> float:
    if (seconds := _parse_seconds(value)) <= 0:
        raise refuse("more than 0s is expected")
    return seconds


def _parse_thousandths(value: object) -> int:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            if 0 <= (amount := parse_quantity(value, milli=True)) < _TOO_MUCH:
                return amount
        except ValueError:  # also what Python says of thousands of digits
            pass
    raise refuse('a quantity such as 4, "500m" or "5Gi" is expected')


def _parse_address(value: object) -> Address:
    """As Go's listeners write it; `0` is controller-runtime's word for nowhere."""
    if value == "0":
        return Address(None, 0)
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not re.fullmatch(r":[1-9][0-9]{0,4}", colon + port, re.ASCII) or int(port) > 65535 or not _is_host(host):
        raise refuse('an address such as ":8080" or "127.0.0.1:8080" is expected, or "0" for none')
    return Address(host.strip("[]") or None, int(port))


def _is_host(text: str) -> bool:
    if not text.startswith("["):
        return text == "" or re.fullmatch(DNS_SUBDOMAIN, text, re.ASCII) is not None  # an IPv4 address looks like a name
    try:
        return text.endswith("]") and ipaddress.IPv6Address(text[1:-1]) is not None
    except ValueError:
        return False


def _validate_framework(name: str) -> str:
    if name not in FRAMEWORKS:
        near = find_nearest(name, FRAMEWORKS)
        raise refuse(f"did you mean {near}?" if near else f"use {format_choice(FRAMEWORKS)}, or externalFrameworks for a kind of your own")
    return name


def _check_gates(values: dict[str, Any]) -> dict[str, Any]:
    """Each gate alone, and those that are good together."""
    mistakes: list[Mistake] = []
    good: list[str] = []
    for name, value in values.items():
        where = build_path("", name)
        if not isinstance(value, bool):
            mistakes.append(Mistake(where, f"{format_value(value)} is not accepted; use true or false"))
        elif name in GATES:
            try:
                read_gates([f"{name}={str(value).lower()}"])
                good.append(f"{name}={str(value).lower()}")
            except BadGates as error:
                mistakes.append(Mistake(where, str(error)))
    try:
        read_gates(good)
    except BadGates as error:
        mistakes.append(Mistake("", str(error)))
    if mistakes:
        raise refuse_inside(mistakes)
    return values


def list_unknown_gates(values: Mapping[str, bool]) -> list[str]:
    """Returns the names of feature gates of a file that are neither topogate's nor those of a release of Kueue that is known, as a newer
    one may have them (docs/decisions/0008)."""
    return [name for name in values if name not in GATES and name not in OTHER_GATES and name not in FORMER_GATES]


def filter_placement_gates(values: Mapping[str, bool]) -> dict[str, bool]:
    """Returns a new dict of those of the feature gates of a file that topogate serves (`GATES`), with their values; others are left out."""
    return {name: value for name, value in values.items() if name in GATES}


# Go takes the empty text for what is not given.
EMPTY_IS_NONE = BeforeValidator(lambda value: None if value == "" else value)
Duration = Annotated[float, BeforeValidator(_parse_duration_from_0)]
"""As Go writes it; in seconds."""
Pause = Annotated[float, BeforeValidator(_parse_positive_duration)]
"""A duration that takes time."""
Share = Annotated[float, Field(ge=0, le=1)]
"""A part of something, from 0 to 1."""
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
AtLeastOne = Annotated[int, Field(ge=1, le=2**31 - 1)]
Port = Annotated[int, Field(ge=1, le=65535)]
BindAddress = Annotated[Annotated[Address, BeforeValidator(_parse_address)] | None, EMPTY_IS_NONE]
Thousandths = Annotated[int, BeforeValidator(_parse_thousandths)]
"""A quantity; in thousandths of a whole unit, rounded up."""
ResourceName = Annotated[str, match_pattern(LABEL_NAME, "the name of a resource such as nvidia.com/gpu")]
ResourcePrefix = Annotated[str, match_pattern(r"[A-Za-z0-9][-A-Za-z0-9_./]*", "the beginning of a resource's name such as example.com/")]
DeviceClassName = Annotated[str, match_pattern(LABEL_NAME, "the name of a DeviceClass such as gpu.example.com")]
LabelKey = Annotated[str, match_pattern(LABEL_NAME, "the key of a label", longest=317)]
Namespace = Annotated[Annotated[str, match_pattern(DNS_LABEL, "the name of a namespace", longest=63)] | None, EMPTY_IS_NONE]
ObjectName = Annotated[Annotated[str, match_pattern(DNS_SUBDOMAIN, "the name of an object")] | None, EMPTY_IS_NONE]
Framework = Annotated[str, AfterValidator(_validate_framework)]
GroupVersionKind = Annotated[
    str, match_pattern(r"[A-Za-z][A-Za-z0-9]*\.v[a-z0-9]+\.[-a-z0-9.]+", "Kind.version.group such as Foo.v1.example.com")
]
Gates = Annotated[dict[str, Any], AfterValidator(_check_gates)]
"""Feature gates by name, each true or false."""
