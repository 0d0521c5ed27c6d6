"""What is read of our own kinds are fields that the models of `core.api` describe, with the defaults that these have.

The models say which fields there are: the CRDs are generated from them. Facts are read from JSON without the models, since these refuse an
object as a whole for any one field (docs/decisions/0005). Here the two are held to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest

from core.api.kinds.check_kinds import AdmissionCheck
from core.api.kinds.flavor_kind import ResourceFlavor
from core.api.kinds.meta import KubernetesObject, ObjectMeta
from core.api.kinds.podgroup_kinds import NodeTopology, PodGroup
from core.api.kinds.provisioning_kind import ProvisioningRequestConfig
from core.api.kinds.queue_kinds import ClusterQueue, Cohort, LocalQueue
from core.api.kinds.topology_kind import Topology
from core.api.kinds.workload_kind import Workload
from core.api.schema import build_fields, build_schema
from core.names import OWN_GROUP, OWN_VERSION
from core.podgroups.podgroup_facts import read_aliases, read_pod_group
from core.state.check_facts import CheckFacts, ProvisioningConfig
from core.state.facts import FlavorFacts, TopologyFacts, WorkloadFacts
from core.state.queue_facts import ClusterQueueFacts, CohortFacts, LocalQueueFacts

Schema = Mapping[str, Any]
Read = Callable[[Any], Any]

READERS: dict[type[KubernetesObject], Read] = {
    AdmissionCheck: CheckFacts.read,
    ClusterQueue: ClusterQueueFacts.read,
    Cohort: CohortFacts.read,
    LocalQueue: LocalQueueFacts.read,
    NodeTopology: lambda obj: read_aliases([obj]),
    PodGroup: read_pod_group,
    ProvisioningRequestConfig: ProvisioningConfig.read,
    ResourceFlavor: FlavorFacts.read,
    Topology: TopologyFacts.read,
    Workload: WorkloadFacts.read,
}
# Values that mean something beyond their type.
VALUES = {"apiVersion": f"{OWN_GROUP}/{OWN_VERSION}", "status": "True", "count": 4}
EITHER_OR = {"universal"}  # of which there may be one alone


class Described(dict[str, Any]):
    """An object that is read by a schema: fields that this does not have are noted."""

    def __init__(self, values: Mapping[str, Any], schema: Schema, path: str, unknown: set[str]) -> None:
        super().__init__(values)
        self._fields, self._path, self._unknown = schema.get("properties"), path, unknown

    def _note(self, name: str) -> None:
        if self._fields is not None and name not in self._fields:
            self._unknown.add(f"{self._path}.{name}")

    def get(self, name: str, default: Any = None) -> Any:
        self._note(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self._note(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self._note(str(name))
        return super().__contains__(name)


def describe(schema: Schema, path: str, unknown: set[str], name: str = "") -> Any:
    """A value with every field that a schema has."""
    match schema.get("type"):
        case "object":
            given = [(field, of_field) for field, of_field in schema.get("properties", {}).items() if field not in EITHER_OR]
            fields = {field: describe(of_field, f"{path}.{field}", unknown, field) for field, of_field in given}
            if "additionalProperties" in schema:
                fields["cpu"] = describe(schema["additionalProperties"], f"{path}.*", unknown)
            return Described(fields, schema, path, unknown)
        case "array":
            return [describe(schema["items"], f"{path}[]", unknown)]
        case "integer" | "number":
            return VALUES.get(name, 1)
        case "boolean":
            return True
        case _ if "enum" in schema:
            return schema["enum"][-1]
        case _ if schema.get("format") == "date-time":
            return "2026-01-01T00:00:00Z"
        case _:
            return VALUES.get(name, "1")


def find_unknown(model: type[KubernetesObject], read: Read) -> set[str]:
    """Fields that are read of an object and that its model does not have."""
    unknown: set[str] = set()
    schema = build_schema(model)
    schema["properties"]["metadata"] = build_fields(ObjectMeta)
    read(describe(schema, model.__name__, unknown))
    return unknown


@pytest.mark.parametrize("model", READERS, ids=lambda model: model.__name__)
def test_reader_of_a_kind_asks_for_fields_of_its_model_alone(model: type[KubernetesObject]):
    assert find_unknown(model, READERS[model]) == set()


def test_reader_that_asks_for_a_field_of_no_model_is_found():
    assert find_unknown(Topology, lambda obj: obj["spec"]["levels"][0].get("nodeLable")) == {"Topology.spec.levels[].nodeLable"}
    assert find_unknown(LocalQueue, lambda obj: "queue" in obj["metadata"]) == {"LocalQueue.metadata.queue"}


def list_defaults(schema: Schema, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Fields of objects (of no list) that the API server fills in, and with what."""
    for name, field in schema.get("properties", {}).items():
        if "default" in field:
            yield (*path, name), field["default"]
        yield from list_defaults(field, (*path, name))


def remove(obj: dict[str, Any], path: tuple[str, ...]) -> None:
    for name in path[:-1]:
        obj = obj[name]
    del obj[path[-1]]


DEFAULTS = [(model, path, value) for model in READERS for path, value in list_defaults(build_schema(model))]


@pytest.mark.parametrize(("model", "path", "value"), DEFAULTS, ids=lambda case: getattr(case, "__name__", None) or str(case)[:60])
def test_field_that_is_not_there_is_read_as_the_api_server_would_fill_it_in(
    model: type[KubernetesObject], path: tuple[str, ...], value: object
):
    given = describe(build_schema(model), "", set())
    given["metadata"] = {"name": "x", "namespace": "ns"}
    filled, left_out = deepcopy(given), deepcopy(given)
    into = filled
    for name in path[:-1]:
        into = into[name]
    into[path[-1]] = value
    remove(left_out, path)
    assert READERS[model](left_out) == READERS[model](filled)
