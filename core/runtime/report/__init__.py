"""Logs, metrics, probes and traces.

Imported by the rest of `core.runtime` and by the processes.
"""
