"""What the steps of a run say of recording: how uneven they are, and those beside each window."""
