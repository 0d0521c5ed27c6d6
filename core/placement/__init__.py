"""Places: which nodes the pods of a workload get, or why there are none.

One entry, `engine.place`, and values that it returns.

Imported by `cli`, `core.placement.algorithms`, `core.placement.explain`, `core.placement.replace`, `core.plan`,
`core.podgroups`, `core.queueing`.
"""
