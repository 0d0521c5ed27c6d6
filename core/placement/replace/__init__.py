"""Places for pods whose workload has pods that stay: replacement of lost nodes, growth, shrinking.

Imported by queueing.
"""
