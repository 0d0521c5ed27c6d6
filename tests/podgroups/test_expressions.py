"""Expressions that choose devices, as kube-scheduler 1.36 evaluates them (k8s.io/dynamic-resource-allocation/cel)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.podgroups.devices.claims import ResourceSlice, read_slice
from core.podgroups.devices.device_expressions import UnknownExpression, is_selected, parse_device_quantity
from tests.podgroups.devices import DRIVER, build_resource_slice

OF_DRIVER = f'device.attributes["{DRIVER}"]'
DEVICE = {
    "name": "gpu-0",
    "attributes": {
        "model": {"string": "a100"},
        "index": {"int": 3},
        "healthy": {"bool": True},
        "firmware": {"version": "1.10.2"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:01"},
    },
    "capacity": {"memory": {"value": "40Gi"}, "cores": {"value": "500m"}},
}


def build_device(obj: dict[str, Any] | None = None) -> Any:
    (found,) = read(obj or DEVICE).devices
    return found.fields


def read(obj: dict[str, Any]) -> ResourceSlice:
    return read_slice(build_resource_slice("p", [obj]))


TAKEN = [
    f'device.driver == "{DRIVER}"',
    f'{OF_DRIVER}.model == "a100" && {OF_DRIVER}.index >= 3 && {OF_DRIVER}.healthy',
    f'{OF_DRIVER}.model in ["a100", "h100"]',
    f'{OF_DRIVER}.model.matches("^a[0-9]+$") && {OF_DRIVER}.model.upperAscii().startsWith("A")',
    'device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:01"',
    f'"model" in {OF_DRIVER} && has({OF_DRIVER}.model) && !has({OF_DRIVER}.other)',
    '!has(device.attributes["other.example.com"].model)',
    '!("other.example.com" in device.attributes)',
    f'{OF_DRIVER}.?other.orValue("none") == "none"',
    f'cel.bind(mine, {OF_DRIVER}, mine.model == "a100" && mine.index == 3)',
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) == 0',
    f'device.capacity["{DRIVER}"].memory == quantity("40960Mi")',
    f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("39.5Gi"))',
    f'device.capacity["{DRIVER}"].cores.isLessThan(quantity("1")) && !device.capacity["{DRIVER}"].cores.isInteger()',
    'quantity("1Gi").add(quantity("1Gi")).asInteger() == 2147483648 && quantity("2k").sub(1000).sign() == 1',
    'quantity("1.5").asApproximateFloat() == 1.5',
    'isQuantity("1Gi") && !isQuantity("much")',
    f'{OF_DRIVER}.firmware.isGreaterThan(semver("1.9.0")) && {OF_DRIVER}.firmware.minor() == 10',
    f'{OF_DRIVER}.firmware.compareTo(semver("1.10.2")) == 0 && semver("1.0.0-rc.2").isLessThan(semver("1.0.0-rc.10"))',
    'semver("1.0.0-1").isLessThan(semver("1.0.0-alpha")) && semver("1.0.0-rc.1").isLessThan(semver("1.0.0"))',
    'isSemver("1.0.0+build") && !isSemver("1.0") && semver("2.3.4").major() + semver("2.3.4").patch() == 6',
    "device.allowMultipleAllocations == false",
]


@pytest.mark.parametrize("expression", TAKEN)
def test_a_device_is_taken(expression: str) -> None:
    assert is_selected(expression, build_device())
    assert not is_selected(f"!({expression})", build_device())


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        (f'{OF_DRIVER}.other == "x"', "Key not found in map"),
        ('device.attributes["other.example.com"].model == "x"', "Key not found in map"),
        (f'device.capacity["{DRIVER}"].memory >= quantity("1Gi")', "no matching overload"),
        (f'device.capacity["{DRIVER}"].memory.isGreaterThan(semver("1.0.0"))', "semver"),
        ('quantity("much").sign() == 1', "'much' is no quantity"),
        ('semver("1").major() == 1', "no semantic version"),
        ('quantity("1.5").asInteger() == 1', "no integer"),
        ("device.driver", "neither true nor false"),
        ("no expression", "Syntax error"),
        ("device.unheardOf()", "unheardOf"),
        ('!("x" in device.attributes) && !has(device.attributes["x"].y)', "which drivers there are"),
    ],
)
def test_expression_that_cannot_be_evaluated_raises_the_cause(expression: str, says: str) -> None:
    with pytest.raises(UnknownExpression, match=says.replace("(", r"\(")):
        is_selected(expression, build_device())


def test_too_much_work_is_not_done() -> None:
    many = f"[{','.join(map(str, range(20)))}]"
    expression = "true"
    for name in "abcdef":
        expression = f"{many}.all({name}, {expression})"
    began = time.process_time()
    with pytest.raises(UnknownExpression, match="budget"):
        is_selected(expression, build_device())
    assert time.process_time() - began < 5, "all 64,000,000 rounds would take minutes"


@given(st.integers(0, 2**50), st.sampled_from(["", "m", "k", "Ki", "Gi", "E"]))
def test_equal_quantities_are_equal_however_they_are_written(number: int, suffix: str) -> None:
    assert parse_device_quantity(f"{number}{suffix}") == parse_device_quantity(f"{number}.0{suffix}")
    assert is_selected(f'device.capacity["{DRIVER}"].memory == quantity("{number}{suffix}")', build_device(of(number, suffix)))
    assert is_selected(f'device.capacity["{DRIVER}"].memory.isLessThan(quantity("{number + 1}{suffix}"))', build_device(of(number, suffix)))


def of(number: int, suffix: str) -> dict[str, Any]:
    return {"name": "gpu-0", "capacity": {"memory": {"value": f"{number}{suffix}"}}}


@pytest.mark.parametrize(
    "forged",
    [
        '{"quantity": "1e10000000"}.asInteger() > 0',
        'dyn({"quantity": "1e10000000"}).sign() > 0',
        'quantity("1").add(dyn({"quantity": "1e10000000"})).sign() > 0',
        'dyn({"quantity": "1/0"}).sign() > 0',
        'dyn({"quantity": 5}).sign() > 0',
    ],
)
def test_map_that_an_expression_writes_is_no_quantity(forged: str) -> None:
    began = time.process_time()
    with pytest.raises(UnknownExpression):
        is_selected(forged, build_device())
    assert time.process_time() - began < 5, "a number of 10,000,000 digits takes hours"


def test_calls_of_functions_of_one_evaluation_are_limited() -> None:
    hundred, ten = (f"[{','.join(['0'] * count)}]" for count in (100, 10))
    calls = "".join(['.add(quantity("1e-40"))'] * 20)
    with pytest.raises(UnknownExpression, match="more than 1000 calls"):
        is_selected(f'{hundred}.all(x, {ten}.all(y, quantity("1"){calls}.sign() == 1))', build_device())
    assert is_selected(f'{ten}.all(x, {ten}.all(y, quantity("1").sign() == 1))', build_device()), "the next one begins anew"


def test_expression_that_reads_attributes_of_very_many_absent_drivers_is_refused() -> None:
    many = " && ".join(f'!has(device.attributes["d{number}.example.com"].x)' for number in range(150))
    with pytest.raises(UnknownExpression, match="32 or more drivers"):
        is_selected(many, build_device())
