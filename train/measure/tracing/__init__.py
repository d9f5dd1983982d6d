"""Kineto windows: what is recorded, within which limits, what recording costs, and how traces are written."""
