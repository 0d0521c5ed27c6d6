"""Controllers of nodes: lost nodes, domains short of room, spare nodes.

Imported by `reconciler.app`, `reconciler.podgroups` and `reconciler.measure`.
"""
