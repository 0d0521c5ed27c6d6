"""The levels that a job names in its annotation for a PodGroup, read and judged."""

from collections.abc import Iterator
from dataclasses import dataclass

from core.jobs.annotation_catalog import OWN
from core.jobs.contract import ErrorType, FieldError
from core.model.label_names import is_label_name
from core.names import PODGROUP_TOPOLOGY

MAX_LEVELS = 16  # of a PodGroup
REQUIRED, PREFERRED = "Required", "Preferred"  # as in a PodGroup
SHOWN = f"{OWN}[{PODGROUP_TOPOLOGY}]"
_LEVEL_EXPECTED = "a node label such as cloud.provider.com/topology-rack is expected, or the name that a NodeTopology gives one"


@dataclass(frozen=True, slots=True)
class RequestedLevel:
    """A node label, or an alias of one, that names the domain which the pods share; with PREFERRED where that is possible."""

    name: str
    mode: str = REQUIRED


def read_levels(text: str) -> tuple[RequestedLevel, ...]:
    """Returns the levels of a text, such as `a/rack,b/block:Preferred`, in its order, the widest first by rule. Empty where
    `validate_levels` finds any error: pods are not placed by a part of their request."""
    found = [_read_level(part) for part in text.split(",")]
    return tuple(level for level in found if isinstance(level, RequestedLevel)) if not any(validate_levels(text)) else ()


def _read_level(text: str) -> RequestedLevel | str:
    """A level, or what would be accepted in its place."""
    name, colon, mode = (part.strip() for part in text.partition(":"))
    if not is_label_name(name):
        return _LEVEL_EXPECTED
    if colon and mode not in (REQUIRED, PREFERRED):
        return f"{name}:{REQUIRED} or {name}:{PREFERRED} is expected; without either it is required"
    return RequestedLevel(name, mode or REQUIRED)


def validate_levels(text: str) -> Iterator[FieldError]:
    """Yields an error for each level, between commas, that cannot be read or is named twice, and one where there are more than
    `MAX_LEVELS`. An empty text is one level that cannot be read."""
    parts = [part.strip() for part in text.split(",")]
    seen = set[str]()
    for part in parts:
        level = _read_level(part)
        if isinstance(level, str):
            yield FieldError(ErrorType.INVALID, SHOWN, part, level)
        elif level.name in seen:
            yield FieldError(ErrorType.DUPLICATE, SHOWN, part, "each level is named once, the widest first")
        else:
            seen.add(level.name)
    if len(parts) > MAX_LEVELS:
        yield FieldError(ErrorType.TOO_MANY, SHOWN, len(parts), f"at most {MAX_LEVELS} levels are expected")
