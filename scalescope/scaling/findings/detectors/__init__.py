"""One cause a file: from the ranks laid side by side to candidates that the replay then prices."""
