"""What a job's own rows say of its steps, in the window or not."""
