"""What is watched, and how it is folded into the state.

Imported by `cli`, `reconciler`, `reconciler.execute`, `reconciler.jobs`, `reconciler.measure`, `reconciler.nodes`,
`reconciler.podgroups`, `reconciler.pods`, `reconciler.schedule`, `reconciler.visibility`, `reconciler.workloads`.
"""
