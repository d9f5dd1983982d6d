"""Submitting jobs to Slurm."""
