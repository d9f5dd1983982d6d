"""Profiles as XLA writes them (jax.profiler): `*.xplane.pb` and `*.trace.json.gz`, a device of which is one rank."""
