"""Jobs beyond data parallelism whose truth is known: what they are (cases), the job, and the check."""
