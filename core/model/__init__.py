"""Values that the algorithms use: quantities, pod sets, quota, configuration.

Imported by everything but `core.runtime`.
"""
