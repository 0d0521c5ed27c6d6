"""Why a pod set got its domain or got none, and which changes would make it fit.

Imported by the engine, by `core.placement.replace` and by queueing.
"""
