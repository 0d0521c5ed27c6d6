"""Each field of our kinds, described once: schemas, defaults and rules of the CRDs come from here.

Imported by `core.api`, `core.api.files`.
"""
