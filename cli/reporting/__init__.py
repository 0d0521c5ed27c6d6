"""What commands print: of workloads, PodGroups and topologies.

Imported by `cli.commands` and `cli.planning`.
"""
