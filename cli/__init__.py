"""The command `topogate`.

Imported by `cli.planning`, `cli.reporting`.
"""
