"""Measures: training jobs and their Kineto traces."""
