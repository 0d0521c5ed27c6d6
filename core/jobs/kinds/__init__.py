"""The kinds of job, one in a file, and the registry of all.

A kind is added here (docs/development/adding-a-kind.md). Imported by `cli`, `core.plan`, `reconciler`, `webhook`.
"""
