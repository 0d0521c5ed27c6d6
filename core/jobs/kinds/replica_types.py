"""Kinds that hold a map of replica types, each with a pod template: the training operator's and the MPI operator's."""

from collections.abc import Iterator
from typing import ClassVar

from core.jobs.contract import ErrorType, FieldError, Finish, Json
from core.jobs.schema_check import BOOLEAN, INTEGER, POD_TEMPLATE, Fields, Shape
from core.jobs.templated import Path, Role, TemplatedKind, parse_integer
from core.names import REPLICA_INDEX_LABEL

_REPLICA = Fields({"replicas": INTEGER, "template": POD_TEMPLATE})


def build_replica_spec_shape(field: str, types: tuple[str, ...], **more: Shape) -> Fields:
    """What the spec of such a kind looks like, as far as it matters."""
    return Fields({field: Fields(dict.fromkeys(types, _REPLICA)), "runPolicy": Fields({"suspend": BOOLEAN}), **more})


class ReplicatedKind(TemplatedKind):
    """One pod set per replica type, in the order of `types`; ranks are replica indexes within one.

    `field` is where the spec has the map.
    """

    suspend_path: ClassVar[Path] = ("spec", "runPolicy", "suspend")
    field: ClassVar[str]
    types: ClassVar[tuple[str, ...]]

    def list_roles(self, job: Json) -> list[Role]:
        replicas = (job.get("spec") or {}).get(self.field) or {}
        return [
            Role(
                name.lower(),
                parse_integer(replicas[name].get("replicas"), 1),
                ("spec", self.field, name, "template"),
                f"spec.{self.field}[{name}].template",
                replicas[name].get("template") or {},
                pod_index_label=REPLICA_INDEX_LABEL,
            )
            for name in self.types
            if replicas.get(name)
        ]

    def validate_kind(self, job: Json) -> Iterator[FieldError]:
        """Pods of a type that is not known would not be counted; an operator may know `worker` as `Worker`."""
        for name in (job.get("spec") or {}).get(self.field) or {}:
            if name not in self.types:
                accepted = f"{' or '.join(self.types)} is expected"
                yield FieldError(ErrorType.NOT_SUPPORTED, f"spec.{self.field}", name, accepted)

    def count_active_pods(self, job: Json, dropped: int = 0) -> int:
        statuses = (job.get("status") or {}).get("replicaStatuses") or {}
        return sum(int((status or {}).get("active") or 0) for status in statuses.values())

    def find_finish(self, job: Json) -> Finish | None:
        return self.finish_by_condition(job, "Succeeded", "Failed")
