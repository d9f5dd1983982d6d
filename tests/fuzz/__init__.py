"""Inputs that nobody wrote on purpose: mutated traces, logs, run folders, configs and flight records."""
