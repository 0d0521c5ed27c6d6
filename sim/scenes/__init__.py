"""The scenes of `tests/reconciler` on a World: the same tests as on a real control plane, in virtual time."""
