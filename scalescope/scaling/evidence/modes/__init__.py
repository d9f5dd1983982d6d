"""What a host does because of a mode that its program is run in."""
