"""The step as run beside the step as profiled, where recording makes a difference."""
