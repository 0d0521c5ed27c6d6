"""Expressions by which requests and device classes choose devices (CEL), as kube-scheduler evaluates them.

The language is Google's own implementation of it; here is what Kubernetes adds: the variable `device`, quantities and versions.
"""

import re
import threading
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from core.model.quantity import InvalidQuantity, parse_exact_quantity

if TYPE_CHECKING:
    from cel_expr_python import cel

_KEPT = 1024  # compiled expressions
_MOST_CALLS = 1_000  # of the functions below for one device, of some 10 microseconds each: nothing interrupts an evaluation
_MOST_EVALUATIONS = 32  # for one device, each with one more domain that has no attributes
_NUMBER = re.compile(r"-?[0-9]{1,1000}(/[0-9]{1,1000})?")
_SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
_MISSING = re.compile(r'NOT_FOUND: Key not found in map : "(.*)"', re.DOTALL)
_ASKS_WHAT_THERE_IS = re.compile(r"\bin\s+device\.(attributes|capacity)\b(?!\s*\[)")
_QUANTITY, _SEMVER_KEY = "quantity", "semver"
Fields = dict[str, Any]


class _Work(threading.local):
    calls = 0  # in the present evaluation


_work = _Work()


class UnknownExpression(ValueError):
    """An expression that cannot be evaluated; the message has the reason."""


def parse_device_quantity(text: str) -> Fields:
    """Returns a Kubernetes quantity as expressions have it: a map with the exact number as text under `quantity`, so that equal ones are
    equal, however they are written.

    Raises InvalidQuantity where the text is no quantity, or too long to be read exactly.
    """
    return {_QUANTITY: str(parse_exact_quantity(text))}


def has_at_least(value: Any, least: str) -> bool:
    """Whether a capacity of a device is not less than the quantity `least`. It is one only as the map that `parse_device_quantity` returns.
    False for anything else, text such as "10Gi" included. Raises InvalidQuantity where it is such a map and `least` is no quantity."""
    return isinstance(value, Mapping) and _QUANTITY in value and Fraction(value[_QUANTITY]) >= parse_exact_quantity(least)


def parse_semver(text: str) -> Fields:
    """Returns a version as expressions have it: a map with its text under `semver`. Raises ValueError where the text is no semantic
    version."""
    if _SEMVER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no semantic version")
    return {_SEMVER_KEY: text}


def is_selected(expression: str, device: Mapping[str, Any]) -> bool:
    """Whether an expression selects a device, as `claims.Device.fields` has it. Raises UnknownExpression where it cannot be evaluated.

    If a driver reports no attributes of a device, the device has none, as for kube-scheduler: that is no error, a missing attribute is.
    """
    fields = {name: dict(value) if isinstance(value, Mapping) else value for name, value in device.items()}
    _work.calls = 0
    for _ in range(_MOST_EVALUATIONS):
        result = _evaluate(expression, fields)
        if isinstance(result, bool):
            return result
        missing = _MISSING.fullmatch(result)
        domain = missing[1] if missing is not None else ""
        if missing is None or domain in fields["attributes"] or f'"{domain}"' not in expression.replace("'", '"'):
            raise UnknownExpression(result)
        if _ASKS_WHAT_THERE_IS.search(expression):
            raise UnknownExpression(f"it asks which drivers there are and reads attributes of {domain}, which has none")
        fields["attributes"][domain] = {}
        fields["capacity"].setdefault(domain, {})
    raise UnknownExpression(f"it reads attributes of {_MOST_EVALUATIONS} or more drivers that say nothing of the device")


def _evaluate(expression: str, fields: Fields) -> bool | str:
    """Returns the value of an expression, or the error as text."""
    try:
        value = _compile_expression(expression).eval(data={"device": fields})
    except RuntimeError as error:  # too much work, most of all
        return _format_in_one_line(error)
    result: object = value.plain_value()
    if isinstance(result, bool):
        return result
    return result if isinstance(result, str) and value.type() == _load_error_type() else "it is neither true nor false"


@lru_cache(_KEPT)
def _compile_expression(expression: str) -> "cel.Expression":
    try:
        return _load_environment().compile(expression)
    except RuntimeError as error:
        raise UnknownExpression(_format_in_one_line(error)) from error


def _format_in_one_line(error: Exception) -> str:
    text = str(error).split("\n", 1)[0]
    return re.sub(r"^(INVALID_ARGUMENT|INTERNAL): (ERROR: )?|\s*\[[A-Z_]+\]$", "", text).strip()


@cache
def _load_error_type() -> "cel.Type":
    from cel_expr_python import cel

    return cel.Type.ERROR


@cache
def _load_environment() -> "cel.Env":
    """Loaded when the first expression is met: most clusters have none."""
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

    kinds = {"bool": cel.Type.BOOL, "int": cel.Type.INT, "string": cel.Type.STRING, "double": cel.Type.DOUBLE}
    kinds |= {"value": cel.Type.Map(cel.Type.STRING, cel.Type.DYN), "list": cel.Type.List(cel.Type.DYN), "any": cel.Type.DYN}

    def declare_function(name: str, *overloads: tuple[str, str, Callable[..., Any]]) -> "cel.FunctionDecl":
        made = []
        for number, (returned, parameters, function) in enumerate(overloads):
            given = [kinds[one] for one in parameters.lstrip(".").split()]
            made.append(cel.Overload(f"{name}_{number}", kinds[returned], given, parameters.startswith("."), _count_calls(function)))
        return cel.FunctionDecl(name, made)

    functions = [
        declare_function("quantity", ("value", "string", parse_device_quantity)),
        declare_function("isQuantity", ("bool", "string", _can(parse_device_quantity))),
        declare_function("semver", ("value", "string", parse_semver)),
        declare_function("isSemver", ("bool", "string", _can(parse_semver))),
        declare_function("compareTo", ("int", ".value value", _compare)),
        declare_function("isLessThan", ("bool", ".value value", lambda one, other: _compare(one, other) < 0)),
        declare_function("isGreaterThan", ("bool", ".value value", lambda one, other: _compare(one, other) > 0)),
        declare_function("isInteger", ("bool", ".value", lambda one: _number_of(one).denominator == 1)),
        declare_function("asInteger", ("int", ".value", _as_integer)),
        declare_function("asApproximateFloat", ("double", ".value", lambda one: float(_number_of(one)))),
        declare_function("sign", ("int", ".value", lambda one: _order(_number_of(one), Fraction(0)))),
        declare_function(
            "add", ("value", ".value value", _add), ("value", ".value int", lambda one, number: _add(one, _build_quantity(number)))
        ),
        declare_function(
            "sub",
            ("value", ".value value", _subtract),
            ("value", ".value int", lambda one, number: _subtract(one, _build_quantity(number))),
        ),
        declare_function("major", ("int", ".value", lambda one: _get_numbers(one)[0])),
        declare_function("minor", ("int", ".value", lambda one: _get_numbers(one)[1])),
        declare_function("patch", ("int", ".value", lambda one: _get_numbers(one)[2])),
    ]
    extensions = [ext_strings.ExtStrings(), ext_optional.ExtOptional(), ext_bindings.ExtBindings()]
    return cel.NewEnv(variables={"device": cel.Type.DYN}, extensions=extensions, functions=functions)


def _count_calls(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which raises RuntimeError once an evaluation has called such functions too often."""

    def count_and_call(*arguments: Any) -> Any:
        _work.calls += 1
        if _work.calls > _MOST_CALLS:
            raise RuntimeError(f"more than {_MOST_CALLS} calls of functions of quantities and versions for one device")
        return function(*arguments)

    return count_and_call


def _can(parse: Callable[[str], Fields]) -> Callable[[str], bool]:
    def can(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, InvalidQuantity):
            return False
        return True

    return can


def _compare(one: Fields, other: Fields) -> int:
    if _QUANTITY in one and _QUANTITY in other:
        return _order(_number_of(one), _number_of(other))
    return _order(_compute_precedence(one), _compute_precedence(other))


def _order(one: Any, other: Any) -> int:
    return int(one > other) - int(one < other)


def _number_of(one: Fields) -> Fraction:
    """The number of a quantity. Raises ValueError for a map that no function here has made: expressions may write any, also one with a
    number that takes hours to read."""
    text = one[_QUANTITY]
    if not isinstance(text, str) or _NUMBER.fullmatch(text) is None:
        raise ValueError("a map that is no quantity, or a quantity of more than 1000 digits")
    return Fraction(text)


def _as_integer(one: Fields) -> int:
    value = _number_of(one)
    if value.denominator != 1:
        raise ValueError(f"{value} is no integer")
    return int(value)


def _build_quantity(number: int | Fraction) -> Fields:
    return {_QUANTITY: str(number)}


def _add(one: Fields, other: Fields) -> Fields:
    return _build_quantity(_number_of(one) + _number_of(other))


def _subtract(one: Fields, other: Fields) -> Fields:
    return _build_quantity(_number_of(one) - _number_of(other))


def _get_numbers(one: Fields) -> tuple[int, int, int]:
    match = _SEMVER.fullmatch(one[_SEMVER_KEY])
    assert match is not None  # `parse_semver` made it
    return int(match[1]), int(match[2]), int(match[3])


def _compute_precedence(one: Fields) -> tuple[Any, ...]:
    """Returns the sort key by the rules of semantic versions: a pre-release comes before its release, numbers before text."""
    match = _SEMVER.fullmatch(one[_SEMVER_KEY])
    assert match is not None
    words = match[4].split(".") if match[4] else []
    return (*_get_numbers(one), not words, [(0, int(word), "") if word.isdigit() else (1, 0, word) for word in words])
