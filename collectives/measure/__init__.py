"""One group at work: its memory, its clock, its patterns."""
