"""The scenes that tests play with stand-ins, played with the real operators, in a kind cluster: `python -m e2e.kind`.

A stand-in is a model, and a model can lie: here each operator is installed at a pinned version and the same objects must
end on the same nodes. Needs Docker on Linux; `docs/development/kind.md` says what for and what of this has been run.
"""
