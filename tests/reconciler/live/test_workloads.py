"""Scenes of workloads and queues that `make test` plays on the real control plane; their modules are played in memory there."""

from tests.reconciler.schedule.test_preemption import test_lent_quota_is_reclaimed_by_its_owner
from tests.reconciler.workloads.test_admission_checks import judges, test_a_check_of_another_kind_delays_the_start_and_keeps_the_place
from tests.reconciler.workloads.test_pods_ready import (
    follow,
    test_pods_ready_condition_is_written_for_running_workloads_only_with_the_feature_on,
)
from tests.reconciler.workloads.test_profiles import test_feature_gates_define_the_default_profile, uneven
from tests.reconciler.workloads.test_status_of_queues import test_object_in_use_is_held_by_a_finalizer_until_its_queue_is_deleted
