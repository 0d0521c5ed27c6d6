"""Which workloads are evicted for one that does not fit, and the room that is held for it.

Imported by `cli`, `core.queueing.cycle`.
"""
