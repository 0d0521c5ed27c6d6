"""The decision loop, and how its verdicts are written.

Imported by `reconciler`, `reconciler.measure`.
"""
