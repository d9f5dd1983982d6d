"""What lies where a trace was looked for."""
