"""What hosts say that is told with a replay and without one."""
