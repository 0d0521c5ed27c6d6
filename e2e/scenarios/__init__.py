"""Facts of scenarios that are played on a control plane, by whoever places pods on it."""
