"""Topology assignments and their form in `status.admission`: encoding and decoding (KEP-2724).

Imported by `core.api`, `core.model`, `core.placement`, `core.plan`, `core.queueing`, `core.state`.
"""
