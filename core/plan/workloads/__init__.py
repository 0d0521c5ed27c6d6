"""Plans for Workloads and queues: admission, checks, readiness, requeueing and their statuses.

Imported by `cli`, `core.plan.jobs`, `core.plan.pods`, `reconciler`.
"""
