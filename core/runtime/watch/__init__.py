"""Copies of objects, kept up to date by watches.

Imported by `cli`, `reconciler`, `webhook`.
"""
