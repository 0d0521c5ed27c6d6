"""The one executor of plans, and the one recorder of events, spans and counts.

Imported by all controllers.
"""
