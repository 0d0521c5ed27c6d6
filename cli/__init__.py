"""The command `topogate`.

Imported by nothing.
"""
