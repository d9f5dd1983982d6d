"""A sweep's rows as people read them."""
