"""The topology as arrays, with what is free on its nodes and which of them a pod may use.

Imported by the rest of `core.placement` and by `core.state`.
"""
