"""What to do about a finding, in words."""
