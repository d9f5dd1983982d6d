"""Jobs of many kinds with one known cause each, and whether it is what analyze says."""
