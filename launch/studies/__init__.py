"""Studies: which jobs one consists of, and running them one after another."""
