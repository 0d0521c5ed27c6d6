"""HTTP to one API server: client, credentials, errors and rate limits.

Imported by `certs`, `cli`, `core.runtime`, `core.runtime.report`, `core.runtime.watch`, `reconciler`, `webhook`.
"""
