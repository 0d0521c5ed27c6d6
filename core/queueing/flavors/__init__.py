"""The search for a way to admit one workload: flavors, quota and place.

Imported by the rest of `core.queueing`.
"""
