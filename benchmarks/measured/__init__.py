"""Tables of benchmarks/results: of a .tsv as it lies there, or made of the rows beside it (see tables.py)."""
