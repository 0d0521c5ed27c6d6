"""In which order workloads are decided on, and how long a refusal stands.

Imported by `core.queueing.preemption` and `core.queueing.cycle`.
"""
