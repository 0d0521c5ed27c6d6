"""A cluster in memory: an API server and small models of what else there is in a cluster, for the real reconciler and webhook."""
