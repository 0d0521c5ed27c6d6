"""In which order workloads are decided on, and how long a refusal stands.

Imported by `cli`, `core.plan`, `core.queueing.cycle`, `core.queueing.preemption`, `reconciler`.
"""
