"""Plans: from a decision and what is observed to the list of writes that follow.

Pure. Imported by no other package.
"""
