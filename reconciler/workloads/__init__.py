"""Controllers of Workloads and queues: activity, checks, readiness, statuses.

Imported by `reconciler`.
"""
