"""`topogate plan`: what would happen to objects of files.

Imported by `cli`.
"""
