"""Plans for pods: those that are queued themselves, those that lose their gate, those on lost nodes.

Imported by `cli`, `reconciler`.
"""
