"""What plans are made of: writes as values, conditions, pacing and what a pause holds back.

Imported by all other plans and by the executor.
"""
