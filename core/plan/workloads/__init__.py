"""Plans for Workloads and queues: admission, checks, readiness, requeueing and their statuses.

Imported by the plans for jobs and pods and by `reconciler`.
"""
