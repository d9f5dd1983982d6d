"""Whether two sides did the same: the work, the samples a rank had, and what they ran in."""
