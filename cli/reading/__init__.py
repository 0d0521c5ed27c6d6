"""What the command reads from a cluster, as far as the user may: plain lists, and the state that is made of them. It says what could not be
read. Imported by `cli`, `cli.reporting`.
"""
