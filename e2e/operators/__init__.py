"""The real operators, built from their Go modules and run as local processes beside a control plane, without a container engine.

Each runs by its own service account with the rights of its own manifests. `make operators` builds all; `docs/kinds.md` says what is proved
with them.
"""
