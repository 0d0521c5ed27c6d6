"""Decisions: which workload is admitted, with which flavors and nodes, and which are evicted for it.

Pure. Imported by no other package.
"""
