"""What a change would do to the step: the replay of a changed graph against the replay of the unchanged one."""
