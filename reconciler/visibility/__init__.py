"""The visibility API: which workloads wait, and in which order, as an aggregated API of the Kubernetes API server.

Imported by `reconciler`.
"""
