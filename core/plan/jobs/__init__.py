"""Plans for jobs and the Workloads that are made for them.

Imported by `cli`, `core.plan.pods`, `reconciler`.
"""
