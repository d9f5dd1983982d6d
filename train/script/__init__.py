"""A training loop that is not ours, measured from inside: the same run folder, traces and rows as our own jobs'."""
