"""What a job was to record: why it recorded less, and what would tell more."""
