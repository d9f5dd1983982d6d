"""A scorecard's rows: figures of one machine, each with the conditions that it holds under."""
