"""A finding's code in words: what it is called, and what its evidence says."""
