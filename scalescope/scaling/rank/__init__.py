"""What one rank's trace says by itself."""
