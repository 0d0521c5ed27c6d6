"""Values that the algorithms use: quantities, pod sets, quota, configuration.

Imported by `cli`, `core`, `core.api`, `core.jobs`, `core.placement`, `core.plan`, `core.podgroups`, `core.queueing`,
`core.state`, `reconciler`, `webhook`.
"""
