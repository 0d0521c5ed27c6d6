"""The body of a review: JSON of a known kind, or refused in words.

A request that is no review at all is the caller's fault: `parse_body` raises `MalformedReview`, which the server answers with 400.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

# What a message quotes of a caller's input, and how much of all messages an answer carries: logs and clients show both.
MAX_QUOTE_CHARS = 256
MAX_MESSAGE_CHARS = 4096
Review = TypeVar("Review", bound=BaseModel)


class MalformedReview(ValueError):
    """The body is no review of the kind and version expected; the message says why and quotes at most a little of it."""


def parse_body(body: bytes, model: type[Review], what: str) -> Review:
    """Returns the JSON of a body as an object of `model`; `what` is the text that messages call it. Raises `MalformedReview` with a short
    message for any other body, also for numbers that JSON cannot express (NaN, 1e400). The size of the body is not checked."""
    try:
        value = json.loads(body, parse_float=_parse_finite, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise MalformedReview(f"the body is not JSON: {cut_text(str(error), MAX_QUOTE_CHARS)}") from None
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        problem = cut_text(f"{where}: {first['msg']}", MAX_QUOTE_CHARS)
        raise MalformedReview(f"the body is not {what}: {problem}") from None


def cut_text(text: str, limit: int) -> str:
    """Returns a text of at most `limit` characters; if it was longer, the last of these is an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _parse_finite(text: str) -> float:
    """A number as Python's own reader takes it, but not 1e400: it would be written back as Infinity, which is no JSON."""
    number = float(text)
    return number if isfinite(number) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{cut_text(text, MAX_QUOTE_CHARS)} is no number that JSON can say again")
