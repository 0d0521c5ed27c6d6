"""What the JSON of an object has to look like before it is judged."""

from __future__ import annotations

import pytest

from core.jobs.schema_check import build_spec_shape, find_misshapen


@pytest.mark.parametrize("kind", ["ResourceFlavor", "ClusterQueue", "Cohort"])
def test_configuration_without_a_spec_is_accepted(kind: str):
    """Kueue's quick start begins with a ResourceFlavor that has no spec."""
    assert find_misshapen(build_spec_shape(kind), {"kind": kind, "metadata": {"name": "default"}}) == ()
    assert find_misshapen(build_spec_shape(kind), {"kind": kind, "metadata": {"name": "default"}, "spec": []})


def test_a_topology_without_a_spec_is_refused():
    [error] = find_misshapen(build_spec_shape("Topology"), {"kind": "Topology", "metadata": {"name": "default"}})
    assert error.field == "spec"
