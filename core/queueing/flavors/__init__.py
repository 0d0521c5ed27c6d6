"""The search for a way to admit one workload: flavors, quota and place.

Imported by `cli`, `core.plan`, `core.queueing.cycle`, `core.queueing.ordering`, `core.queueing.preemption`,
`reconciler`.
"""
