"""torch's DistributedDataParallel: what it is (config), and its torch half (strategy)."""
