"""What an object must look like before its kind may default and judge it.

Built-in kinds reach a webhook decoded by the API server, so a Job always has its shape; custom resources reach a
mutating one before their schema was judged, with anything anywhere. Described is only what topogate reads.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from core.jobs.contract import ErrorType, FieldError, Json

MOST_MISMATCHES = 256
"""More than an answer can name: an object of 200 KB has room for 60,000."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value of a JSON type; null counts as absent, but not inside of a map or list."""

    type: type
    expected: str


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map with any keys; null counts as absent."""

    value: "Shape"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; null counts as absent."""

    item: "Shape"


@dataclass(frozen=True, slots=True)
class Fields:
    """A map with known fields; those that are not `needed` may be absent, and others are not checked.

    Never null: defaults are written into it.
    """

    fields: Mapping[str, "Shape"] = field(default_factory=dict)
    needed: tuple[str, ...] = ()


Shape = Scalar | MapOf | ListOf | Fields

TEXT = Scalar(str, "a text")
INTEGER = Scalar(int, "a whole number")
BOOLEAN = Scalar(bool, "true or false")
TEXTS = MapOf(TEXT)
_OWNER = Fields({"apiVersion": TEXT, "kind": TEXT, "name": TEXT, "uid": TEXT, "controller": BOOLEAN})
METADATA = Fields(
    {
        "name": TEXT,
        "generateName": TEXT,
        "labels": TEXTS,
        "annotations": TEXTS,
        "finalizers": ListOf(TEXT),
        "ownerReferences": ListOf(_OWNER),
    }
)
CONTAINERS = ListOf(Fields({"resources": Fields()}))
POD_SPEC = Fields(
    {
        "containers": CONTAINERS,
        "initContainers": CONTAINERS,
        "nodeSelector": TEXTS,
        "schedulingGates": ListOf(Fields({"name": TEXT})),
        "tolerations": ListOf(Fields({"key": TEXT, "operator": TEXT, "value": TEXT, "effect": TEXT})),
    }
)
POD_TEMPLATE = Fields({"metadata": METADATA, "spec": POD_SPEC})
_TOPOLOGY_REQUEST = Fields(
    {
        "podSetSliceSize": INTEGER,
        "podsetSliceRequiredTopologyConstraints": ListOf(Fields({"topology": TEXT, "size": INTEGER})),
    }
)
_QUOTAS = ListOf(Fields({"name": TEXT}))
_RESOURCE_GROUPS = ListOf(Fields({"coveredResources": ListOf(TEXT), "flavors": ListOf(Fields({"name": TEXT, "resources": _QUOTAS}))}))

_SPECS: dict[str, Fields] = {  # of our own kinds; each kind of job has its own
    "Workload": Fields(
        {
            "podSets": ListOf(
                Fields({"name": TEXT, "count": INTEGER, "template": POD_TEMPLATE, "topologyRequest": _TOPOLOGY_REQUEST}),
            )
        }
    ),
    "Topology": Fields({"levels": ListOf(Fields({"nodeLabel": TEXT}))}),
    "ResourceFlavor": Fields(
        {
            "nodeLabels": TEXTS,
            "nodeTaints": ListOf(Fields({"key": TEXT, "value": TEXT, "effect": TEXT})),
            "tolerations": ListOf(Fields({"key": TEXT, "operator": TEXT, "value": TEXT, "effect": TEXT})),
        }
    ),
    "ClusterQueue": Fields({"resourceGroups": _RESOURCE_GROUPS}),
    "Cohort": Fields({"resourceGroups": _RESOURCE_GROUPS}),
}
_MAY_LACK_SPEC = ("ResourceFlavor", "ClusterQueue", "Cohort", "LocalQueue")  # a flavor of all nodes, a queue or cohort without quota
_STATUS = Fields({"replicas": INTEGER, "readyReplicas": INTEGER, "conditions": ListOf(Fields({"type": TEXT, "status": TEXT}))})


def build_spec_shape(kind: str) -> Fields:
    """Returns the shape of the spec of one of topogate's own kinds, as far as it is read; one without fields, which any object fits, for
    all other names."""
    return _SPECS.get(kind, Fields())


def find_misshapen(spec: Fields, obj: Json) -> tuple[FieldError, ...]:
    """Returns an error for every place where an object does not have the JSON type that topogate expects, the first `MOST_MISMATCHES`;
    empty where it fits. `spec` is the shape of its spec; metadata and status are compared, too. Fields that topogate does not read are not.

    Metadata is needed, and so is the spec, except for ResourceFlavor, ClusterQueue, Cohort and LocalQueue.
    """
    needed = ("metadata",) if obj.get("kind") in _MAY_LACK_SPEC else ("metadata", "spec")
    return find_mismatches(obj, Fields({"metadata": METADATA, "spec": spec, "status": _STATUS}, needed))


def find_mismatches(obj: Json, shape: Shape) -> tuple[FieldError, ...]:
    """Returns an error for every place where an object does not have the JSON types of a shape: the first `MOST_MISMATCHES` in the order of
    the shape, empty where it fits. Fields without a shape are not looked at."""
    return tuple(islice(_compare("", obj, shape), MOST_MISMATCHES))


def fits(value: Any, shape: Shape) -> bool:
    """Returns whether a value has the JSON types of a shape, in all of its parts. None fits any shape but `Fields`."""
    return next(_compare("", value, shape), None) is None


def _compare(path: str, value: Any, shape: Shape) -> Iterator[FieldError]:
    match shape:
        case Fields(fields, needed):
            if not isinstance(value, dict):
                yield _build_error(path, value, "a map")
                return
            for name, inner in fields.items():
                where = f"{path}.{name}" if path else name
                if name in value:
                    yield from _compare(where, value[name], inner)
                elif name in needed:
                    yield FieldError(ErrorType.REQUIRED, where, None, "is needed")
        case _ if value is None:
            return
        case MapOf(inner):
            if not isinstance(value, dict):
                yield _build_error(path, value, "a map")
                return
            for key, entry in value.items():
                yield from _compare_entry(f"{path}[{key}]", entry, inner)
        case ListOf(inner):
            if not isinstance(value, list):
                yield _build_error(path, value, "a list")
                return
            for i, entry in enumerate(value):
                yield from _compare_entry(f"{path}[{i}]", entry, inner)
        case Scalar(type_, expected):
            if not isinstance(value, type_) or (isinstance(value, bool) and type_ is not bool):
                yield _build_error(path, value, expected)


def _compare_entry(path: str, value: Any, shape: Shape) -> Iterator[FieldError]:
    if value is None and isinstance(shape, Scalar):
        yield _build_error(path, value, shape.expected)
    else:
        yield from _compare(path, value, shape)


def _build_error(path: str, value: Any, expected: str) -> FieldError:
    return FieldError(ErrorType.TYPE_INVALID, path, value, f"{expected} is expected")
