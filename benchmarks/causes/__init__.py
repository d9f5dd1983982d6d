"""Jobs with one known cause of lost time each, measured without a profiler and traced (see known_causes.py)."""
