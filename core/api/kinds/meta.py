"""The base of all wire models, and the types every kind shares.

A wire model is a frozen view of what was read: fields it does not know are ignored, so that an object of a newer
version still parses, and `to_wire` gives back only what was set, so that topogate never writes what it did not mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from core.api.kinds.marks import ATOMIC_LIST, ATOMIC_MAP, Mark, list_map, merge, set_int_format

DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
LABEL_NAME = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


class Wire(BaseModel):
    """Frozen; camelCase on the wire, either spelling in Python. Attribute docstrings become the schema's descriptions."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )
    rules: ClassVar[tuple[Mark, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        reference = handler(core_schema)
        schema = handler.resolve_ref_schema(reference)
        for mark in cls.rules:
            schema.update(merge(schema, mark.values))
        return dict(reference)

    @classmethod
    def from_wire(cls, value: Mapping[str, Any]) -> Self:
        """Returns the model of a JSON object of the API server; unknown fields are ignored. Raises pydantic's `ValidationError` where a
        field is missing or has a value that the model does not accept."""
        return cls.model_validate(value)

    def to_wire(self) -> dict[str, Any]:
        """Returns a new JSON object with the fields that were set to something but None, also inside, and nothing else: defaults are left
        out. Keys are in camelCase, times in UTC with whole seconds."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


def _format_time(at: datetime) -> str:
    # Whole seconds and Z: what metav1.Time writes, so that a value read back compares equal.
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Time = Annotated[AwareDatetime, PlainSerializer(_format_time, when_used="json"), WithJsonSchema({"type": "string", "format": "date-time"})]
Int32 = Annotated[int, set_int_format("int32")]
Int64 = Annotated[int, set_int_format("int64")]
JsonObject = Mapping[str, Any]
OPEN_OBJECT = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""Schema of an object that is stored as it was written."""
OpenObject = Annotated[JsonObject, WithJsonSchema(OPEN_OBJECT)]

Quantity = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if isinstance(value, int) and not isinstance(value, bool) else value),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": QUANTITY, "x-kubernetes-int-or-string": True}),
]
"""A resource quantity as written: "1500m", "8Gi", or a number. `core.model` gives it its value."""

ResourceList = Mapping[str, Quantity]

ObjectName = Annotated[str, Field(max_length=253, pattern=DNS_SUBDOMAIN)]
MAX_LEVELS = 16
LevelLabel = Annotated[str, Field(max_length=317)]
# Level references of a pod set's request are shorter than the labels of a Topology may be: the wire contract's limit.
LevelReference = Annotated[str, Field(max_length=63)]
NodeLabelValue = Annotated[str, Field(max_length=63)]


class OwnerReference(Wire):
    """An owner of an object; with `controller` the one owner that manages it."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Wire):
    """The part of an object's metadata that topogate reads."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: Mapping[str, str] = Field(default_factory=dict)
    annotations: Mapping[str, str] = Field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """Returns the first owner reference with `controller: true`; None where there is none."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class ConditionFields(Wire):
    """One observation of an object's state."""

    type: Annotated[str, Field(max_length=316, pattern=LABEL_NAME)]
    """What is observed, in CamelCase, possibly with a DNS prefix."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    observed_generation: Annotated[Int64, Field(ge=0)] | None = None
    """The generation of the object that the observation was made of."""
    last_transition_time: Time
    """When the status last changed."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """Why, as one word for programs."""
    message: Annotated[str, Field(max_length=32768)]
    """Why, for people. May be empty."""


Conditions = Annotated[tuple[ConditionFields, ...], Field(max_length=16), list_map("type")]


def find_condition(conditions: tuple[ConditionFields, ...], kind: str) -> ConditionFields | None:
    """Returns the first condition of the type `kind`; None where there is none."""
    return next((condition for condition in conditions if condition.type == kind), None)


class LabelSelectorRequirement(Wire):
    """A key, an operator and values that together select labels."""

    key: str
    """The label key the selector applies to."""
    operator: str
    """In, NotIn, Exists or DoesNotExist."""
    values: Annotated[tuple[str, ...], ATOMIC_LIST] = ()
    """The values for In and NotIn; empty for the other operators."""


class LabelSelector(Wire):
    """All requirements must hold; an empty selector selects everything."""

    rules: ClassVar[tuple[Mark, ...]] = (ATOMIC_MAP,)

    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], ATOMIC_LIST] = ()
    """Requirements on labels."""
    match_labels: Mapping[str, str] = Field(default_factory=dict)
    """Labels that must have these values."""


class KubernetesObject(Wire):
    """A Kubernetes object of one of our kinds. `crd` says how the API server offers it (see `core.api.schema`)."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
