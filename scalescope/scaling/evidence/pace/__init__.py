"""How long a host takes for each operator: between ranks, and between steps."""
