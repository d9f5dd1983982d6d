"""Sweeps beside sweeps: other tools' logs read as rows, and two sweeps compared."""
