"""Kinds that hold a map of replica types, each with a pod template: the training operator's and the MPI operator's."""

from collections.abc import Iterator
from typing import ClassVar

from core.jobs.contract import ErrorType, FieldError, Finish, Json
from core.jobs.schema_check import BOOLEAN, INTEGER, POD_TEMPLATE, Fields, Shape
from core.jobs.templated import Path, Role, TemplatedKind, parse_integer
from core.names import REPLICA_INDEX_LABEL

_REPLICA = Fields({"replicas": INTEGER, "template": POD_TEMPLATE})


def build_replica_spec_shape(field: str, types: tuple[str, ...], **more: Shape) -> Fields:
    """Returns the shape of the spec of a kind with a map of replica types, as far as it is read. `field`: the map's name; `types`: its
    keys; `more`: further fields with their shapes."""
    return Fields({field: Fields(dict.fromkeys(types, _REPLICA)), "runPolicy": Fields({"suspend": BOOLEAN}), **more})


class ReplicatedKind(TemplatedKind):
    """One pod set per replica type, in the order of `types`; ranks are replica indexes within one.

    `field` is where the spec has the map.
    """

    suspend_path: ClassVar[Path] = ("spec", "runPolicy", "suspend")
    field: ClassVar[str]
    types: ClassVar[tuple[str, ...]]

    def list_roles(self, job: Json) -> list[Role]:
        """Returns one role per replica type that the job has, in the order of `types`. It is called by its type in lower case and has
        `replicas` pods (1 by default). Types that are not known or are empty are left out."""
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
        """Yields an error for each replica type that is not known: its pods would not be counted. An operator may know `worker` as
        `Worker`."""
        for name in (job.get("spec") or {}).get(self.field) or {}:
            if name not in self.types:
                accepted = f"{' or '.join(self.types)} is expected"
                yield FieldError(ErrorType.NOT_SUPPORTED, f"spec.{self.field}", name, accepted)

    def count_active_pods(self, job: Json, dropped: int = 0) -> int:
        """Returns the pods of all replica types that its status counts as active; `dropped` is not used."""
        statuses = (job.get("status") or {}).get("replicaStatuses") or {}
        return sum(int((status or {}).get("active") or 0) for status in statuses.values())

    def find_finish(self, job: Json) -> Finish | None:
        """Returns how the job ended by its conditions Succeeded and Failed; None while neither is True."""
        return self.finish_by_condition(job, "Succeeded", "Failed")
