"""What one rank's trace says for a replay, of a device and of a CPU."""
