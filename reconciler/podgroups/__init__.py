"""The controller of PodGroups, and the plugins that place them.

Imported by `reconciler.app` and `cli`.
"""
