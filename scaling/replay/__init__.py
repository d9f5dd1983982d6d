"""Replays a traced step: what waits for what, on the host and on the devices of all ranks, and how it would run else."""
