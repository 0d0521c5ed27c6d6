"""Files that people write: the configuration, and what is wrong with one.

Imported by `cli`, `reconciler`, `webhook`.
"""
