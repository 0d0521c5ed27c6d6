"""Ports that serve HTTP over TLS: certificates that are reloaded, clients that show one, and limits on connections and amounts.

Imported by `certs`, `reconciler`, `webhook`.
"""
