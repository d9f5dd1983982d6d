"""The networks, what they cost, and the arithmetic that they run in."""
