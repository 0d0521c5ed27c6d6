"""Wire formats: our kinds, admission and conversion reviews, files.

Imported by `webhook`, `cli` and the settings of the reconciler.
"""
