"""The webhook process: admission and conversion reviews.

Imported by `cli`.
"""
