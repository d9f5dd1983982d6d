"""What to do first about a run, which its first card and its section on advice say alike."""
