"""Wire formats: our kinds, admission and conversion reviews, files.

Imported by `cli`, `webhook`.
"""
