"""Where a trace's steps come from: the profiler's own annotations, or what else recurs step by step."""
