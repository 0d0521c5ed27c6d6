"""The cluster folded from events, with the one ledger of usage.

Imported by queueing, PodGroups, plans and the processes.
"""
