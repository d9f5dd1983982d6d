"""What this device is, and what physics allows it."""
