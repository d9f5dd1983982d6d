"""Files that a user names to be written."""
