"""HTTP to one API server: client, credentials, errors and rate limits.

Imported by the rest of `core.runtime` and by the processes.
"""
