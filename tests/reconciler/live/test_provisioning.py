"""Scenes of ProvisioningRequests that `make test` plays on the real control plane; their module is played in memory there."""

from tests.reconciler.workloads.test_provisioning import (
    autoscaler,
    make,
    options,
    test_nodes_that_come_in_time_are_used,
    test_provisioning_check_is_inactive_while_its_config_or_api_is_missing,
    test_restarted_reconciler_creates_no_second_provisioning_request,
    watched,
)
