"""What each kernel of a step is bound by: hardware counters, read under ncu, and what they lead to expect elsewhere."""
