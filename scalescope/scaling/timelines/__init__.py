"""One step of all ranks beside each other, to be drawn."""
