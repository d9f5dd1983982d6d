"""One trace file in memory: reading it, and the tables of names that tell what its events are."""
