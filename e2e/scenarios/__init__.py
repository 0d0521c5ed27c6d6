"""User stories 1 to 9 of KEP-2724 as scenarios: one YAML file each, named by the story, and what must be true once it runs.

Every file says which repairs its example needed.
"""
