"""The reconciler process: observe, decide, plan, execute, report (docs/design.md).

Imported by `cli`, `reconciler.measure`, `reconciler.visibility`.
"""
