"""What one rank's trace says about its host: where the host's own time went, and what held it up."""
