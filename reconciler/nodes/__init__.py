"""Controllers of nodes: lost nodes, domains short of room, spare nodes.

Imported by `reconciler`, `reconciler.measure`, `reconciler.podgroups`, `reconciler.schedule`, `reconciler.workloads`.
"""
