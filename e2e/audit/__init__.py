"""Judges a cluster from the API server's objects alone, and shows what is in it.

Imported by tests, `sim`, the demo and the benchmarks.
"""
