"""The command `topogate`.

Imported by `cli.planning`, `cli.reading`, `cli.reporting`.
"""
