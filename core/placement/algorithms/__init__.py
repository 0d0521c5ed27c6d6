"""The algorithms that choose domains, one in a file, and what they share.

Imported by the engine, by what explains its answers and by what replaces pods.
"""
