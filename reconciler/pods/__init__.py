"""Controllers of pods: those that are queued themselves, and those that wait behind a gate.

Imported by `reconciler`.
"""
