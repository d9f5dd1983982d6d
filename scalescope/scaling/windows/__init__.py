"""A job that was profiled in several windows: each is explained for itself, and all of them answer together."""
