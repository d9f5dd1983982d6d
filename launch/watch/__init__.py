"""Ranks that stop arriving: found in bounded time, named, and ended."""
