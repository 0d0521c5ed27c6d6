"""Plans for jobs and the Workloads that are made for them.

Imported by `core.plan.pods` and `reconciler.jobs`.
"""
