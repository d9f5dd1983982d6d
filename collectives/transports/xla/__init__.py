"""`transport=xla`: collectives as XLA compiles them, one process a device, in programs of JAX."""
