"""Comparisons with a known answer: the cases, the jobs that make them, the rows that are kept, and their scoring."""
