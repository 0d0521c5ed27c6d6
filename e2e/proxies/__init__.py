"""Proxies before an API server or a Service, which count, delay or cut connections.

Imported by `e2e` and by tests.
"""
