"""What plans are made of: writes as values, conditions, pacing and what a pause holds back.

Imported by `cli`, `core.plan.jobs`, `core.plan.pods`, `core.plan.workloads`, `reconciler`, `webhook`.
"""
