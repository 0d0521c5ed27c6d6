"""Topology assignments and their form in `status.admission`: encoding and decoding (KEP-2724).

Imported by `core.model.admission` and by plans.
"""
