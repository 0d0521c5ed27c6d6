"""What all kinds of job share: pod sets, defaults, rules, start and stop.

Imported by `cli`, `core.jobs.kinds`, `core.plan`, `reconciler`, `webhook`.
"""
