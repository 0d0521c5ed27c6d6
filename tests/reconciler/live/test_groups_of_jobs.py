"""Scenes of groups of Jobs that `make test` plays on the real control plane; their module is played in memory there."""

from tests.reconciler.podgroups.test_groups_of_jobs import (
    hall,
    test_a_job_is_in_one_rack_and_its_group_is_its_own_and_goes_with_it,
    test_all_jobs_of_a_job_set_are_in_one_rack,
    test_of_a_group_its_numbers_may_change_and_nothing_else,
    test_where_kube_scheduler_has_no_groups_of_its_own_a_job_that_asks_for_it_is_refused,
    topogate,
)
