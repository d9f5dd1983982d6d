"""Where a rank is, and how N of them start."""
