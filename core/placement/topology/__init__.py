"""The topology as arrays, with what is free on its nodes and which of them a pod may use.

Imported by `cli`, `core.placement`, `core.placement.algorithms`, `core.placement.explain`, `core.placement.replace`,
`core.plan`, `core.podgroups`, `core.queueing`, `core.state`, `reconciler`.
"""
