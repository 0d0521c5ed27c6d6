"""Scenes of failing nodes that `make test` plays on the real control plane; their modules are played in memory there."""

from tests.reconciler.nodes.test_failed_nodes import (
    test_job_with_the_documented_pod_failure_policy_survives_lost_nodes_at_backoff_limit_zero,
    test_pods_of_failed_nodes_move_within_their_rack_and_no_other_pod_is_touched,
    wide,
)
from tests.reconciler.nodes.test_failing_racks import (
    open_scene,
    test_most_of_the_nodes_not_ready_while_their_pods_run_and_nothing_is_done,
    test_nodes_lost_while_webhook_is_down_are_replaced_and_jobs_are_stopped,
)
