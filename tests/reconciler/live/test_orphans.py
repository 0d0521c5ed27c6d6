"""Orphaned pods on the real control plane in `make test`; their module is played in memory there."""

from tests.reconciler.pods.test_orphans import _garbage_is_collected, scene, test_quota_of_orphaned_pods_is_released_when_the_last_pod_ends
