"""The real operators: how they are built and run, and what becomes of their jobs with topogate."""
