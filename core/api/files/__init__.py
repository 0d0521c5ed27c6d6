"""Files that people write: the configuration, and what is wrong with one.

Imported by the processes and `cli`.
"""
