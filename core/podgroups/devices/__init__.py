"""Devices and claims (DRA) as far as places depend on them.

Imported by the rest of `core.podgroups`.
"""
