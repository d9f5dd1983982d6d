"""Findings of a job's own rows, beside those of its windows."""
