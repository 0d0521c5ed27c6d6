"""What is watched, and how it is folded into the state.

Imported by all controllers.
"""
