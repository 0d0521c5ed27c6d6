"""The parts of answers, for all reviews: an object's fields as far as they are present, and its mistakes as the API
server reports them."""

import json
from collections.abc import Sequence
from typing import Any

from core.api.admission_review import MAX_CAUSES, AdmissionRequest, Cause, allow, deny
from core.api.body import MAX_QUOTE_CHARS
from core.jobs.contract import FieldError, Json, Rules


def get_metadata_map(obj: Json | None, name: str) -> Json:
    """Returns the labels or annotations (`name`) of an object; empty where they are no map, or there is no object."""
    metadata = (obj or {}).get("metadata")
    found = metadata.get(name) if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}


def is_going(obj: Json) -> bool:
    """Whether an object is being deleted (it has a deletionTimestamp): taking its finalizers off must not fail because of a rule."""
    metadata = obj.get("metadata")
    return isinstance(metadata, dict) and metadata.get("deletionTimestamp") is not None


def judge(request: AdmissionRequest, rules: Rules) -> dict[str, Any]:
    """Returns the answer to a review, as JSON. It allows where the rules have no errors, else it refuses for all mistakes at once
    (`MAX_CAUSES` causes at most). Both answers have the warnings."""
    if not rules.errors:
        return allow(request, rules.warnings)
    return deny(request, _format_headline(rules.errors), [_build_cause(error) for error in rules.errors[:MAX_CAUSES]], rules.warnings)


def _format_headline(errors: Sequence[FieldError]) -> str:
    return "topogate refuses this object:" if len(errors) == 1 else f"topogate refuses this object for {len(errors)} reasons:"


def _build_cause(error: FieldError) -> Cause:
    shown = "" if error.value is None else f"{_format_value(error.value)}: "
    return Cause(error.field, f"{shown}{error.accepted}", error.type.value)


def _format_value(value: Any) -> str:
    """A value as JSON, cut so that no single one crowds the other mistakes out of the message."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_QUOTE_CHARS else text[: MAX_QUOTE_CHARS - 1] + "…"
