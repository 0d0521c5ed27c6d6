"""Scenes of kinds with pod templates that `make test` plays on the real control plane; their modules are played in memory there."""

import pytest

from tests.reconciler.kinds.scenarios import Scenario
from tests.reconciler.kinds.test_pod_groups import (
    test_a_failed_pod_of_a_group_is_replaced_in_its_place,
    test_a_group_is_in_one_rack_in_the_order_of_its_indexes_and_ends_when_all_have_succeeded,
)
from tests.reconciler.kinds.test_serving import (
    test_a_stateful_set_is_one_workload_in_one_rack_in_the_order_of_its_ordinals,
    test_each_pod_of_a_deployment_is_a_workload_and_comes_back_gated_when_stopped,
    test_in_a_managed_namespace_all_pods_are_queued_but_those_of_daemon_sets_and_jobs,
)
from tests.reconciler.kinds.test_templated import (
    get_scenario,
    stage,
    test_an_object_that_breaks_a_rule_is_refused_with_the_field,
    test_life_of_a_kind_with_a_stand_in_is_suspended_and_resumed,
    tidied,
)


@pytest.fixture
def scenario() -> Scenario:
    """The kind of one stand-in: real operators of others have scenes of their own (`tests/operators`)."""
    return get_scenario("RayJob")
