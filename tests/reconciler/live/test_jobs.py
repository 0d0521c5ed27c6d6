"""Scenes of Jobs that `make test` plays on the real control plane; their modules are played in memory there."""

from tests.reconciler.jobs.test_life_of_a_job import (
    test_a_required_rack_job_runs_in_one_rack_in_the_order_of_its_ranks,
    test_suspending_a_running_job_by_hand_gives_its_place_back_and_unsuspending_asks_again,
)
from tests.reconciler.jobs.test_odd_lives import test_a_running_sliced_job_is_resized_only_to_whole_slices
from tests.reconciler.jobs.test_prebuilt import test_a_job_waits_for_a_workload_that_is_made_later
from tests.reconciler.jobs.test_reclaimable import test_workload_that_waits_for_quota_is_admitted_when_pods_of_another_job_succeed
