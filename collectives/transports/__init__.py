"""The ways to the wires: what training gets, what the library itself gives, and MPI."""
