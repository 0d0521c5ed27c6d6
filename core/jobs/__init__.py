"""What all kinds of job share: pod sets, defaults, rules, start and stop.

Imported by `webhook`, `core.plan` and the processes.
"""
