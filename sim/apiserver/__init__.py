"""The API server in memory: verbs, patches, field managers, schemas, webhooks.

Imported by the rest of `sim` and by tests.
"""
