"""Places: which nodes the pods of a workload get, or why there are none.

One entry, `engine.place`, and values that it returns. Imported by state, queueing, PodGroups, plans and the processes.
"""
