"""Devices and claims (DRA) as far as places depend on them.

Imported by `cli`, `core.plan`, `core.podgroups`, `reconciler`.
"""
