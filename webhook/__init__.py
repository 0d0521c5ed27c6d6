"""The webhook process: admission and conversion reviews.

Imported by `cli`, which judges files as it does.
"""
