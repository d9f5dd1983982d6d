"""What taking causes out of the replayed step brings: one by one, together, and of ranks that are late together."""
