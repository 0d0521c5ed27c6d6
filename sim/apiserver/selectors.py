"""Label and field selectors of lists and watches."""

from collections.abc import Callable
from functools import cache
from typing import Any

Json = dict[str, Any]
Term = tuple[str, str, tuple[str, ...]]  # key, operator, values


@cache
def _parse(text: str) -> tuple[Term, ...]:
    """`a=b,c!=d,e in (f,g),h notin (i),j,!k`."""
    terms, depth, part = list[str](), 0, ""
    for letter in [*text, ","]:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            terms.append(part.strip())
            part = ""
        else:
            part += letter
    return tuple(_parse_term(term) for term in terms if term)


def _parse_term(term: str) -> Term:
    for operator in (" notin ", " in "):
        key, found, values = term.partition(operator)
        if found:
            return key.strip(), operator.strip(), tuple(value.strip() for value in values.strip(" ()").split(","))
    for sign, operator in (("!=", "notin"), ("==", "in"), ("=", "in")):
        key, found, value = term.partition(sign)
        if found:
            return key.strip(), operator, (value.strip(),)
    return (term[1:].strip(), "absent", ()) if term.startswith("!") else (term, "present", ())


def _is_match(text: str, read: Callable[[str], str | None]) -> bool:
    for key, operator, values in _parse(text):
        value = read(key)
        fits = {"in": value in values, "notin": value not in values, "present": value is not None, "absent": value is None}[operator]
        if not fits:
            return False
    return True


def has_matching_labels(text: str, obj: Json) -> bool:
    """Whether an object has the labels that a selector asks for."""
    labels = obj["metadata"].get("labels") or {}
    return _is_match(text, labels.get)


def has_matching_fields(text: str, obj: Json) -> bool:
    """The same of fields; one that is missing counts as an empty text."""

    def read(path: str) -> str:
        value: Any = obj
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return "" if value is None else str(value)

    return _is_match(text, read)
