"""Controllers of jobs and of the Workloads that are made for them.

Imported by `cli`, `reconciler`, `reconciler.pods`.
"""
