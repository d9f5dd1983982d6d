"""The run folder: the one place where the measuring half and the reading half meet."""
