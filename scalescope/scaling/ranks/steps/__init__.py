"""Which steps the ranks of a job hold, and which of them all do."""
