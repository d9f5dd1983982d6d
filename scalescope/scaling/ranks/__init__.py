"""What only several ranks' traces together say: which collectives are the same, who waits, whose clock is ahead."""
