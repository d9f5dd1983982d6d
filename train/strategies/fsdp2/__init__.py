"""Fully sharded data parallel (FSDP2): what it is (config), and its torch half (strategy)."""
