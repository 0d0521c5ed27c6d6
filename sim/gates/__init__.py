"""Scenarios in which gates of Kueue 0.20 are on: which of them, the jobs that use them, and how these are judged."""
