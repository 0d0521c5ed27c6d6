"""Scenes of groups of pods that `make test` plays on the real control plane; their modules are played in memory there."""

from tests.reconciler.podgroups.test_podgroups import (
    cut_hall,
    hall,
    test_a_gang_is_bound_in_one_rack_ranks_together,
    test_a_group_without_a_constraint_is_kube_schedulers,
    topogate,
)
