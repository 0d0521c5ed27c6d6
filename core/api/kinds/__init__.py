"""Each field of our kinds, described once: schemas, defaults and rules of the CRDs come from here.

Imported by the rest of `core.api` and by `cli`.
"""
