"""The one executor of plans, and the one recorder of events, spans and counts.

Imported by `cli`, `reconciler`, `reconciler.jobs`, `reconciler.measure`, `reconciler.nodes`, `reconciler.podgroups`,
`reconciler.pods`, `reconciler.schedule`, `reconciler.workloads`.
"""
