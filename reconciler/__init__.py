"""The reconciler process: observe, decide, plan, execute, report (docs/design.md).

Imported by `cli`, which shows what it would decide.
"""
