"""What would shorten the step, and what came of it where it was tried."""
