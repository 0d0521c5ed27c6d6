"""The cluster folded from events, with the one ledger of usage.

Imported by `cli`, `core.plan`, `core.podgroups`, `core.queueing`, `reconciler`.
"""
