"""What the rows of both sides tell beside the median step: waiting for cores, steps that recur."""
