"""The controller of PodGroups, and the plugins that place them.

Imported by `cli`, `reconciler`, `reconciler.measure`.
"""
