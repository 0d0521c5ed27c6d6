"""Files that people write: all mistakes of one are reported at once, each with its path and what would be accepted.

Kubernetes' objects are read leniently (`core.api.kinds.meta`), since their writer may be newer than topogate. The author of a file waits
for an answer, so that an unknown key is a mistake here, and the nearest known one is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError

from core.api.files.mistakes import InvalidFile, Mistake, build_path, find_nearest, format_choice, format_value
from core.api.files.yaml_document import parse_yaml

# pydantic's word for a mistake -> what is expected instead.
EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "an object",
    "recursion_loop": "something that does not hold itself",
    "string_type": "text",
    "string_unicode": "text without half characters",
    "tuple_type": "a list",
}


@dataclass(frozen=True, slots=True)
class Ignored:
    """Marks a field, in its annotation, that is read and has no effect, and says why."""

    why: str


@dataclass(frozen=True)
class Says:
    """What a field says, in its annotation: the documentation is made of it. `default`: where it stands if it is not given."""

    what: str
    default: str = ""


class Strict(BaseModel):
    """An object of such a file: camelCase, no key that is not known, no value of another type. A null stands for what is not given."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=False, validate_by_alias=True, frozen=True, extra="forbid", strict=True
    )

    @classmethod
    def read_text(cls, text: str | bytes, context: Any = None) -> Self:
        """Returns the object that a YAML or JSON document holds; `context` is for validators. Raises InvalidFile with all mistakes, keys
        that are given twice first. If the document is empty, above 1 MiB or cannot be parsed, that is the only one."""
        value, twice = parse_yaml(text)
        try:
            found = cls.read(value, context)
        except InvalidFile as error:
            raise InvalidFile((*twice, *error.mistakes)) from error
        if twice:
            raise InvalidFile(twice)
        return found

    @classmethod
    def read(cls, value: object, context: Any = None) -> Self:
        """Returns the object that parsed YAML or JSON holds; `context` is for validators. Raises InvalidFile with all mistakes, each once,
        unknown keys among them. Where text has half characters, only these are in it."""
        halves = [Mistake(path, "text without half characters is expected") for path in _find_half_characters(value)]
        if halves:  # pydantic cannot name a key that is not text
            raise InvalidFile(halves)
        try:
            return cls.model_validate(value, context=context)
        except ValidationError as error:
            found = error.errors(include_url=False)
        raise InvalidFile(tuple(dict.fromkeys(mistake for one in found for mistake in _list_mistakes(cls, one))))


def refuse(accepted: str) -> PydanticCustomError:
    """Returns what a validator raises for the value at hand: its mistake is "... is not accepted; `accepted`"."""
    return PydanticCustomError("refused", "{accepted}", {"accepted": accepted})


def refuse_inside(mistakes: Iterable[Mistake]) -> PydanticCustomError:
    """Returns what a validator raises for mistakes inside the value at hand, with paths from there: they take the place of one for the
    value as a whole."""
    return PydanticCustomError("refused_inside", "mistakes inside", {"mistakes": tuple(mistakes)})


def match_pattern(pattern: str, accepted: str, *, longest: int = 253) -> AfterValidator:
    """Returns a validator that accepts texts of at most `longest` characters that match a pattern (ASCII) as a whole. For others it raises
    `refuse` with "`accepted` is expected"."""
    compiled = re.compile(pattern, re.ASCII)

    def check(text: str) -> str:
        if len(text) > longest or not compiled.fullmatch(text):
            raise refuse(f"{accepted} is expected")
        return text

    return AfterValidator(check)


def list_ignored(model: Strict, path: str = "") -> Iterator[str]:
    """Yields one warning, with its path below `path`, for each field of a file that is marked as `Ignored` and is not None. Fields of inner
    blocks and of blocks in lists are looked at, too, those in maps are not."""
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if value is None:
            continue
        where = build_path(path, field.alias or name)
        mark = next((mark for mark in field.metadata if isinstance(mark, Ignored)), None)
        if mark is not None:
            yield f"ignored: {where}: {mark.why}"
        for index, inner in enumerate(value) if isinstance(value, list) else ((None, value),):
            if isinstance(inner, Strict):
                yield from list_ignored(inner, where if index is None else build_path(where, index))


def find_blocks(annotation: Any) -> Iterator[type[Strict]]:
    """Yields the models (subclasses of `Strict`) in the annotation of a field: it alone, or inside a union, list or map, in their order
    there. One that is there twice comes twice; fields of the models are not looked into."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation
    for part in get_args(annotation):
        yield from find_blocks(part)


def _find_half_characters(value: object) -> list[str]:
    """Paths of text that no encoding can write."""
    found: list[str] = []
    seen: set[int] = set()
    left: list[tuple[str, object]] = [("", value)]
    while left:
        path, inner = left.pop()
        if isinstance(inner, str) and any("\ud800" <= letter <= "\udfff" for letter in inner):
            found.append(path)
        if isinstance(inner, dict | list) and id(inner) not in seen:
            seen.add(id(inner))
            for key, one in inner.items() if isinstance(inner, dict) else enumerate(inner):
                where = build_path(path, key if isinstance(key, str | int) else format_value(key))
                left += [(where, key), (where, one)]
    return list(dict.fromkeys(found))


def _list_mistakes(root: type[Strict], error: ErrorDetails) -> Iterator[Mistake]:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    loc, of_the_key = error["loc"], False
    # How pydantic says that the key itself is meant; a key may also be called that.
    if loc[-1:] == ("[key]",) and len(loc) > 1 and (kind == "string_type" or str(loc[-2]) == value):
        loc, of_the_key = loc[:-1], True
    path = build_path("", *(_apply_aliases(root, loc) if kind == "refused_inside" else loc))
    if kind == "refused_inside":
        yield from (
            Mistake(f"{path}.{inner.path}" if inner.path and inner.path[0] != "[" else path + inner.path, inner.problem)
            for inner in context["mistakes"]
        )
    elif kind == "extra_forbidden":
        yield Mistake(path, _describe_unknown_key(root, loc))
    elif kind == "missing":
        yield Mistake(path, f"it is missing; {_describe_accepted(root, loc)}")
    elif kind == "invalid_key" or (of_the_key and not isinstance(value, str)):
        yield Mistake(path, "a key that is text is expected; put it into quotes")
    elif kind in ("literal_error", "enum"):
        yield Mistake(path, f"{format_value(value)} is not accepted; use {context['expected'].replace(chr(39), '')}")
    elif kind == "refused":
        yield Mistake(path, f"{format_value(value)} is not accepted; {context['accepted']}")
    else:
        bound = context.get("ge", context.get("gt", context.get("le")))
        limit = {"greater_than_equal": f"{bound} or more", "greater_than": f"more than {bound}", "less_than_equal": f"{bound} or less"}
        expected = EXPECTED.get(kind) or limit.get(kind) or error["msg"]
        yield Mistake(path, f"{format_value(value)} is not accepted; {expected} is expected")


def _apply_aliases(root: type[Strict], loc: Sequence[str | int]) -> list[str | int]:
    """pydantic calls a field that was not given, and is judged all the same, by its name in Python."""
    models = (_find_model_at(root, loc[:depth]) for depth in range(len(loc)))
    return [
        (model.model_fields[part].alias or part) if isinstance(part, str) and model and part in model.model_fields else part
        for model, part in zip(models, loc, strict=True)
    ]


def _describe_accepted(root: type[Strict], loc: Sequence[str | int]) -> str:
    model = _find_model_at(root, loc[:-1])
    choices = get_args(_list_fields(model)[str(loc[-1])].annotation) if model else ()
    return f"use {format_choice(choices)}" if choices and all(isinstance(choice, str) for choice in choices) else "it has to be given"


def _describe_unknown_key(root: type[Strict], loc: Sequence[str | int]) -> str:
    key = str(loc[-1])
    model = _find_model_at(root, loc[:-1]) or root
    near = find_nearest(key, _list_fields(model)) or next((path for name, path in _list_all_keys(root) if name == key), None)
    return f"unknown key; did you mean {near}?" if near else f"unknown key; {', '.join(sorted(_list_fields(model)))} are known here"


def _list_fields(model: type[Strict]) -> dict[str, Any]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _find_model_at(root: type[Strict], loc: Sequence[str | int]) -> type[Strict] | None:
    model: type[Strict] | None = root
    for part in loc:
        if isinstance(part, str):  # numbers count the items of a list, all of one model
            field = _list_fields(model).get(part) if model else None
            model = _find_model(field.annotation) if field else None
    return model


def _find_model(annotation: object) -> type[Strict] | None:
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return annotation
    return next((model for inner in get_args(annotation) if (model := _find_model(inner))), None)


@cache
def _list_all_keys(model: type[Strict], path: str = "") -> tuple[tuple[str, str], ...]:
    """Every key there is, with its path; those of lists have none."""
    found: list[tuple[str, str]] = []
    for name, field in _list_fields(model).items():
        found.append((name, build_path(path, name)))
        inner = field.annotation
        if any(isinstance(one, type) and issubclass(one, Strict) for one in (inner, *get_args(inner))):
            found += _list_all_keys(_find_model(inner) or model, build_path(path, name))
    return tuple(found)
