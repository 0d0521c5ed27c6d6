"""Stand-ins for controllers that are on no registry: they make the pods, with the labels, that the real ones would.

Each is a model of what its controller does as far as topogate meets it (wire contract, B and A.3), and no more.
`e2e/kind` installs the real ones.
"""
