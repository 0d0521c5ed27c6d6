"""Why a pod set got its domain or got none, and which changes would make it fit.

Imported by `cli`, `core.placement`, `core.placement.replace`, `core.plan`, `core.podgroups`, `core.queueing`,
`reconciler`.
"""
