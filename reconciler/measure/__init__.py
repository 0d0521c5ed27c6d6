"""What the process reports about itself: gauges, latencies, and what it would decide now.

Imported by `cli`, `reconciler`.
"""
