"""The loop that runs a graph: in Python, and the same in C."""
