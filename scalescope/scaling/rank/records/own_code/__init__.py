"""What a job's own code, or its author, has computed the long way or besides: by the operators that a host runs."""
