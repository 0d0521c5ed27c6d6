"""What commands print: of workloads, PodGroups and topologies.

Imported by `cli`, `cli.planning`, `cli.reading`.
"""
