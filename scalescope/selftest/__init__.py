"""`scalescope doctor --selftest`: what of scalescope works on this machine, item by item, in one file to send."""
