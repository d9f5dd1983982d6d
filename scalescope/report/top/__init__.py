"""The top of a page: what stands before everything that is folded."""
