"""What the command reads from a cluster, as far as the user may: plain lists, and the state made of them. Only `cli` imports it."""
