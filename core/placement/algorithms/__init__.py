"""The algorithms that choose domains, one in a file, and what they share.

Imported by `core.api`, `core.placement`, `core.placement.explain`, `core.placement.replace`, `core.plan`,
`core.podgroups`, `core.queueing`, `core.state`, `reconciler`.
"""
