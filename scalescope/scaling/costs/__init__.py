"""What a collective takes, as a function of its size and its group: fitted on sweeps, with intervals."""
