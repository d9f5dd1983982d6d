"""A section of the report each: a claim, its charts, and the table of their figures."""
