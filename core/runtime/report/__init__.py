"""Logs, metrics, probes and traces.

Imported by `cli`, `core`, `core.runtime`, `reconciler`, `webhook`.
"""
