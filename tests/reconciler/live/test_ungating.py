"""Pods that get their places on the real control plane in `make test`; their module is played in memory there."""

from tests.reconciler.pods.test_ungating import (
    test_a_nominated_slot_cannot_be_taken_before_its_pod_is_bound,
    test_each_pod_reads_its_place_and_rank_from_its_own_labels,
)
