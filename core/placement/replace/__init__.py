"""Places of workloads that have pods which stay: replacement of lost nodes, growth, shrinking.

Imported by `core.queueing`.
"""
