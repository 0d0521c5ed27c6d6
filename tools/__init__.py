"""Build tools: what makes something of this repository, and is no part of it when it runs."""
