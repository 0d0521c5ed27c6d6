"""Certificates of the webhook: issued, rotated and published.

Imported by `webhook`.
"""
