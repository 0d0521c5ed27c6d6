"""A scene of a hostile user that `make test` plays on the real control plane; its module is played in memory there."""

from tests.reconciler.jobs.test_resisting_jobs import (
    scene,
    slow_node,
    test_preempted_job_that_a_finalizer_keeps_from_being_deleted_gives_its_quota_back,
    test_preempted_job_that_adopts_pod_that_takes_years_to_end_gives_its_quota_back,
    user,
)
