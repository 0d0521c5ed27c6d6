"""One decision cycle over all workloads that wait, and the second pass over those that have quota.

Imported by `cli`, `core.plan`, `reconciler`.
"""
