"""What a step would take on other numbers of GPUs: the trace's own collectives, at the cost model's times."""
