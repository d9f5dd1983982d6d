"""What late ranks are told by, in words."""
