"""What costs the step time: causes are detected, priced by the replay, ranked, and kept as data."""
