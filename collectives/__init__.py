"""Measures: collectives over operations, sizes, dtypes and group sizes."""
