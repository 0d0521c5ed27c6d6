"""PodGroups placed on one placement (KEP-5732): generated, checked and scored by plugins.

Imported by `cli`, `core.plan`, `core.podgroups.devices`, `reconciler`.
"""
