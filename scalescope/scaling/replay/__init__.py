"""Replays a traced step: what waits for what on hosts and devices of all ranks, and how it would run else."""
